"""Keys and values with room for those of the tokens to come, which are else copied for each new token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer


def is_plain(cache: DynamicCache) -> bool:
    """Whether all layers of a cache keep all tokens, so that they can be given room."""
    return all(type(layer) is DynamicLayer for layer in cache.layers)


def give_room(cache: DynamicCache, of_row: Tensor, room: int) -> None:
    """Repeat what a cache holds, row `of_row[n]` for the n-th, with room for so many more tokens."""
    held: list[Any] = cache.layers
    cache.layers = [_Roomy(layer.keys, layer.values, of_row, room) for layer in held]


class _Roomy(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values with room for more, which need not be copied for each new token."""

    def __init__(self, keys: Tensor, values: Tensor, of_row: Tensor, room: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(keys, values)
        self._length = keys.size(-2)
        self._rooms = [
            torch.cat([held[of_row], held.new_zeros(len(of_row), held.size(1), room, held.size(3))], dim=-2)
            for held in (keys, values)
        ]
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        more = key_states.size(-2)
        for room, states in zip(self._rooms, (key_states, value_states), strict=True):
            room[:, :, self._length : self._length + more] = states
        self._length += more
        self._show()
        return self._show()

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (room[:, :, : self._length] for room in self._rooms)
        self.keys, self.values = keys, values
        return keys, values
