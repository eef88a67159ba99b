"""The question tower: the vector of what a question means in its conversation, from the question and the turns before it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.query_encoder_file import Differences
from langgraph_convcoa.retrieval.query.query_encoder_text import Reading

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.query.query_encoder_module import TowerModule

_BATCH = 32


class QuestionTower:
    """A trained copy of the encoder that reads `question [SEP] turns, newest first` in 128 tokens.

    It gives the vector that the encoder would give to the question in full, so that an index of passages stays as it is.
    What training changed is kept as 8-bit differences from the encoder, which is loaded on first use. Several threads may
    use one tower.

    Args:
        base: Name or folder of the encoder that the differences are from.
        differences: What training changed.
        reading: How much of a question and its history is read.
        device: "cpu", "cuda", ...; chosen by sentence-transformers when None.
        batch_size: Questions a forward pass.
    """

    def __init__(
        self,
        base: str,
        differences: Differences,
        reading: Reading | None = None,
        *,
        device: str | None = None,
        batch_size: int = _BATCH,
    ) -> None:
        self.base = base
        self.differences = differences
        self.reading = reading or Reading()
        self.device = device
        self.batch_size = batch_size
        self._module: TowerModule | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"QuestionTower({self.base!r}, {self.reading!r})"

    @classmethod
    def of(cls, module: TowerModule, base: str, *, bits: int = 8, share: float = 1.0) -> QuestionTower:
        """The tower of a trained module: its differences from the encoder, rounded to 8 bits or as they are with 32.

        With a `share` below 1 the weights are averaged with those of the encoder, which is often better on questions of
        another kind than those trained on (Wortsman et al. 2022, WiSE-FT).
        """
        from langgraph_convcoa.retrieval.query.query_encoder_module import TowerModule

        untrained = TowerModule.of(base, module.text.reading, device="cpu")
        found = Differences.between(untrained.learned(), module.learned(), bits=bits)
        return cls(base, found if share == 1 else found.scaled(share), module.text.reading)

    def averaged(self, other: QuestionTower) -> QuestionTower:
        """The tower half-way to another one of the same encoder: the mean of their weights.

        Raises:
            RetrievalError: They are of different encoders, or read differently.
        """
        from langgraph_convcoa.retrieval.query.query_encoder_module import TowerModule

        other.check_alike(self.differences.base_hash, self.reading)
        module = TowerModule.of(self.base, self.reading, device="cpu")
        for tower in (self, other):
            tower.differences.scaled(0.5).add_to(module.learned(), self.base, check=tower is self)
        return QuestionTower.of(module, self.base)

    def check_alike(self, base_hash: str, reading: Reading) -> None:
        """Raise RetrievalError where this tower is not of the encoder with this hash, or does not read so."""
        if (self.differences.base_hash, self.reading) != (base_hash, reading):
            raise RetrievalError(
                "The two question towers are of different encoders, or read differently: "
                "they have no average, and neither can be trained on from the other."
            )

    @classmethod
    def load(cls, path: str | Path, *, base: str | None = None, device: str | None = None) -> QuestionTower:
        """Read a tower that `save` wrote; the encoder is loaded on first use, by the name it had or from another folder.

        Raises:
            RetrievalError: The file is missing, damaged, cut short or of another version.
        """
        differences, name, reading = Differences.load(path)
        return cls(base or name, differences, reading, device=device)

    def save(self, path: str | Path) -> None:
        """Write the tower's differences to a file, in place of one that is there, all at once or not at all."""
        self.differences.save(path, self.base, self.reading)

    def encode(
        self, questions: Sequence[str], histories: Sequence[Sequence[tuple[str, str]]], *, bfloat16: bool = False
    ) -> Vectors:
        """Vectors (n, d) of n questions with their earlier turns, oldest first.

        Of a question the first 126 tokens are read, of its turns as many as there is room for, the newest first.

        Args:
            questions: n questions.
            histories: n lists of pairs of question and answer.
            bfloat16: Compute the matrix products in bfloat16.

        Raises:
            RetrievalError: The encoder cannot be loaded, or is another than the tower was trained from.
        """
        import torch

        module = self.module()
        with self._lock, torch.inference_mode():
            ids = module.text.ids(questions, histories)
            device = next(module.parameters()).device
            half = torch.autocast(device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext()
            rows: list[Vectors] = [np.zeros(0, dtype=np.float32)] * len(ids)
            order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
            for start in range(0, len(order), self.batch_size):
                batch = order[start : start + self.batch_size]
                with half:
                    vectors = module([ids[i] for i in batch])
                for place, row in zip(batch, vectors.cpu().numpy(), strict=True):
                    rows[place] = row
        found = np.stack(rows).astype(np.float32) if rows else np.zeros((0, 0), dtype=np.float32)
        if not np.isfinite(found).all():
            raise RetrievalError("The question tower gave NaN or infinity; train it again or use another model.")
        return found

    def module(self) -> TowerModule:
        """The tower's network, made on first use."""
        with self._lock:
            if self._module is None:
                from langgraph_convcoa.retrieval.query.query_encoder_module import TowerModule

                module = TowerModule.of(self.base, self.reading, device=self.device).eval()
                self.differences.add_to(module.learned(), self.base)
                for parameter in module.parameters():
                    parameter.requires_grad_(False)
                self._module = module
            return self._module
