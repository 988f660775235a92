"""One action of a pipeline schedule: what a rank does for one stage and one micro-batch."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from shardc.diagnostics.pipeline import BadAction

Kind = Literal["F", "B", "I", "W", "O"]
"""Forward; the whole backward; its part that gives the gradient of the stage's input; the rest, gradients of
weights; the optimizer, of a schedule with updates: in no order, since ``Schedule.updates`` says where it
runs.

The letters are those of ``torch.distributed.pipelining``. Zero-bubble papers call I and W B and W.
"""
KINDS: dict[str, str] = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
OPTIMIZER = "O"

_TEXT = re.compile(r"(\d+)([FBIWO])(\d+)")


class Action(NamedTuple):
    """``2F0``: forward of micro-batch 0 in stage 2. ``2O1``: its optimizer behind group 1."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Raises BadAction."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise BadAction(text=text)
        return cls(int(match[1]), match[2], int(match[3]))  # type: ignore[arg-type]  (one of Kind's letters)
