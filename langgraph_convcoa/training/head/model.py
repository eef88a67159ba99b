"""The head: the conversation state and the association of the Hopfield layer, trained on vectors of a frozen encoder."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.hopfield.sparsity import associate
from langgraph_convcoa.retrieval.query.conversation_state import StateWeights
from langgraph_convcoa.retrieval.scoring.weights import HopfieldWeights
from langgraph_convcoa.training.encoded import HISTORY_BETA, HISTORY_WEIGHT
from langgraph_convcoa.training.losses import MemorySets, memory_scores


class HopfieldHead(nn.Module):
    """W_Q, W_K, W_V and beta of the association, and lambda, beta_h, projections and gate of the conversation state.

    It starts as the untrained retriever: identity matrices and an open gate. Stored patterns stay as they are, so that an
    index need not be built again.

    Args:
        dimension: Length d of the encoder's vectors.
        beta: Inverse temperature of the association.
        history_weight: lambda.
        history_beta: beta_h.
        association: Whether W_Q, W_K, W_V and beta are trained; without them questions without a history stay as they were,
            and a search is as fast.

    Raises:
        InputError: A number is not above 0 and finite, from where it could not be trained.

    Example:
        >>> head = HopfieldHead(2)
        >>> x, turns = torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0]]])
        >>> head.states(x, turns, torch.ones(1, 1, dtype=torch.bool)).round(decimals=3).tolist()
        [[0.8569999933242798, 0.5139999985694885]]
    """

    def __init__(
        self,
        dimension: int,
        *,
        beta: float = 10.0,
        history_weight: float = HISTORY_WEIGHT,
        history_beta: float = HISTORY_BETA,
        association: bool = True,
    ) -> None:
        super().__init__()
        numbers = {"beta": beta, "history_weight": history_weight, "history_beta": history_beta}
        for name, number in numbers.items():
            if not 0 < number < math.inf:
                raise InputError(f"{name} must be above 0 and finite for training to start from it, not {number}.")
        # Logarithms, so that they stay above 0.
        self.log_beta = nn.Parameter(torch.tensor(math.log(beta)))
        self.log_history_weight = nn.Parameter(torch.tensor(math.log(history_weight)))
        self.log_history_beta = nn.Parameter(torch.tensor(math.log(history_beta)))
        self.query, self.key, self.value = (nn.Parameter(torch.eye(dimension)) for _ in range(3))
        self.direct, self.association, self.history = (nn.Parameter(torch.eye(dimension)) for _ in range(3))
        self.gate = nn.Parameter(torch.zeros(3 * dimension + 2))
        self.trains_association = association
        self._start = numbers
        for parameter in (self.query, self.key, self.value, self.log_beta):
            parameter.requires_grad_(association)

    def states(self, questions: Tensor, turns: Tensor, mask: Tensor) -> Tensor:
        """The state of each question: (q, d) of questions (q, d), turns (q, t, d) and their mask (q, t)."""
        likeness = torch.einsum("qd,qtd->qt", questions @ self.association, turns)
        weights = associate(likeness, beta=self.log_history_beta.exp(), mask=mask)
        recalled = torch.einsum("qt,qtd->qd", weights, turns)
        both = questions * recalled
        ones = torch.ones_like(both[:, :1])
        features = torch.cat([questions, recalled, both, both.sum(dim=-1, keepdim=True), ones], dim=-1)
        gate = 2 * torch.sigmoid(features @ self.gate).unsqueeze(-1)
        pulled = questions @ self.direct + self.log_history_weight.exp() * gate * (recalled @ self.history)
        return normalize(torch.where(mask.any(dim=-1, keepdim=True), pulled, questions), dim=-1)

    def scores(self, states: Tensor, sets: MemorySets) -> Tensor:
        """The score of every memory set for every state, (q, m)."""
        trained = self.trains_association
        return memory_scores(
            states,
            sets,
            beta=self.log_beta.exp(),
            association=states @ self.query @ self.key.T if trained else None,
            readout=states @ (self.key @ self.value).T if trained else None,
        )

    def distance(self) -> Tensor:
        """How far the weights are from the untrained ones: the sum of squares."""
        eye = torch.eye(len(self.query), device=self.query.device)
        matrices = (self.query, self.key, self.value, self.direct, self.association, self.history)
        return torch.stack([(matrix - eye).square().sum() for matrix in matrices]).sum() + self.gate.square().sum()

    def draw_back(self, share: float) -> None:
        """Keep a share of the way from the untrained weights to the trained ones (Wortsman et al. 2022).

        Example:
            >>> head = HopfieldHead(2)
            >>> _ = nn.init.constant_(head.gate, 1.0)
            >>> head.draw_back(0.5)
            >>> head.gate.unique().tolist(), head.query.tolist()
            ([0.5], [[1.0, 0.0], [0.0, 1.0]])
        """
        untrained = HopfieldHead(len(self.query), association=True, **self._start).to(self.query.device)
        with torch.no_grad():
            for parameter, start in zip(self.parameters(), untrained.parameters(), strict=True):
                parameter.copy_(start + share * (parameter - start))

    @property
    def settings(self) -> dict[str, float]:
        """The numbers as the retriever's settings."""
        return {
            "beta": self.log_beta.exp().item(),
            "passage_weight": 1.0,
            "history_weight": self.log_history_weight.exp().item(),
            "history_beta": self.log_history_beta.exp().item(),
        }

    def weights(self) -> HopfieldWeights | None:
        """W_Q, W_K and W_V for the retriever; None, the identity, where they are not trained."""
        if not self.trains_association:
            return None
        return HopfieldWeights(*(_array(matrix) for matrix in (self.query, self.key, self.value)))

    def state_weights(self) -> StateWeights:
        """Projections and gate of the conversation state for the retriever."""
        return StateWeights(*(_array(weight) for weight in (self.direct, self.association, self.history, self.gate)))


def _array(parameter: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return parameter.detach().cpu().numpy().astype(np.float32).copy()
