"""The mathematics once more, in loops over single numbers, written from the papers and without code of the library."""

import math


def weights(scores, activation, beta, allowed=None):
    """One row of association weights; `scores` and `allowed` are lists."""
    chosen = [i for i in range(len(scores)) if allowed is None or allowed[i]]
    result = [0.0] * len(scores)
    if not chosen:
        return result
    z = [beta * scores[i] for i in chosen]
    top = max(z)
    if activation == "softmax":
        total = sum(math.exp(x - top) for x in z)
        found = [math.exp(x - top) / total for x in z]
    else:
        power, scale = {"sparsemax": (1, 1.0), "entmax15": (2, 0.5)}[activation]
        low, high = scale * top - 1, scale * top
        for _ in range(100):
            tau = (low + high) / 2
            enough = sum(max(scale * x - tau, 0.0) ** power for x in z) >= 1
            low, high = (tau, high) if enough else (low, tau)
        found = [max(scale * x - low, 0.0) ** power for x in z]
    for i, weight in zip(chosen, found, strict=True):
        result[i] = weight
    return result


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def product(matrix, other):
    """Two lists of rows."""
    columns = list(zip(*other, strict=True))
    return [[dot(row, column) for column in columns] for row in matrix]


def transposed(matrix):
    return [list(column) for column in zip(*matrix, strict=True)]


def layer(queries, keys, value, *, betas, activation, allowed=None, steps=1):
    """Z of one batch entry: Q (m, a), K (n, a), W_V (a, output), one beta a head; heads are equal slices of a."""
    size = len(queries[0]) // len(betas)
    output = [[0.0] * len(value[0]) for _ in queries]
    for head, beta in enumerate(betas):
        part = slice(head * size, (head + 1) * size)
        key = [row[part] for row in keys]
        # As the paper has it: V = K W_V is made first, and the steps before the last go through K.
        v = product(key, value[part])
        for m, whole in enumerate(queries):
            state = whole[part]
            for step in range(steps):
                p = weights([dot(state, k) for k in key], activation, beta, allowed[m] if allowed else None)
                if step < steps - 1:
                    state = [sum(p[n] * key[n][i] for n in range(len(key))) for i in range(size)]
            for i in range(len(value[0])):
                output[m][i] += sum(p[n] * v[n][i] for n in range(len(key)))
    return output
