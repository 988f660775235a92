"""Questions of the table: models, clusters of equal GPUs, and global batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CONFIGS = {"OPT-350": "opt_350", "GPT-Neo-2.7": "gpt_neo27"}


@dataclass(frozen=True)
class Question:
    """A model with its training settings, a kind of GPU, and a number of nodes."""

    model: str
    gpu: str
    nodes: int
    batch: int

    @property
    def text(self) -> str:
        return f"{self.model}, {self.nodes} nodes of {self.gpu}, batch {self.batch}"

    def request(self, planner: Path) -> dict[str, object]:
        """Return the question for Sailor's side."""
        training = json.loads(
            (planner / f"simulations/configs/training_config_{CONFIGS[self.model]}.json").read_text()
        )
        case = {
            "gpu": self.gpu,
            "nodes": self.nodes,
            "training": {**training, "global_batch_size": self.batch},
        }
        return case


def questions(
    models: Sequence[str], gpus: Sequence[str], nodes: Sequence[int], batches: Sequence[int]
) -> Iterator[Question]:
    """Yield every product of the four lists."""
    for model in models:
        for gpu in gpus:
            for count in nodes:
                for batch in batches:
                    yield Question(model, gpu, count, batch)
