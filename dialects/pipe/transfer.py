"""Sends and receives of a pipeline: what stands between the actions of its ranks."""

import re
from typing import Literal, NamedTuple

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.collective import Collective, parse_action

TransferKind = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B"]
_TEXT = re.compile(r"(\d+)(SEND_F|RECV_F|SEND_B|RECV_B)(\d+)")


class Transfer(NamedTuple):
    """``2SEND_F0``: stage 2 sends what its forward of micro-batch 0 made; ``3RECV_F0``: stage 3 receives it.

    B stands for the gradient, which goes the other way. The form is that of ``torch.distributed.pipelining``.
    """

    stage: int
    kind: TransferKind
    micro_batch: int

    @property
    def sends(self) -> bool:
        return self.kind.startswith("SEND")

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


Step = Action | Transfer | Collective
Steps = tuple[tuple[Step, ...], ...]
"""For each rank its actions, sends, receives and collectives in order."""


def parse_step(text: str) -> Step:
    """An action, a transfer or a collective. Raises BadAction."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        return parse_action(text)
    return Transfer(int(match[1]), match[2], int(match[3]))  # type: ignore[arg-type]  (one of TransferKind's)
