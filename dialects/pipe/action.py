"""What ranks of a pipeline do, in the words of ``torch.distributed.pipelining``: actions, which run a stage
for a micro-batch; collectives of its parameters and gradients; sends and receives between them.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeVar

from shardc.diagnostics.passes.pipeline import BadAction

Kind = Literal["F", "B", "I", "W", "O"]
"""Forward; the whole backward; its part that gives the gradient of the stage's input; the rest, gradients of
weights; the optimizer, of a schedule with updates: in no order, since ``Schedule.updates`` says where it
runs. Zero-bubble papers call I and W B and W.
"""
KINDS: dict[str, str] = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
OPTIMIZER = "O"
CollectiveKind = Literal["UNSHARD", "RESHARD", "REDUCE_GRAD"]
COLLECTIVE_KINDS: dict[str, str] = {
    "UNSHARD": "gather of parameters",
    "RESHARD": "release of gathered parameters",
    "REDUCE_GRAD": "reduction of gradients",
}
TransferKind = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B"]


class Action(NamedTuple):
    """``2F0``: forward of micro-batch 0 in stage 2. ``2O1``: its optimizer behind group 1."""

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @staticmethod
    def parse(text: str) -> Action:
        """Raises BadAction."""
        return _parsed(text, Action)


class Collective(NamedTuple):
    """``2REDUCE_GRAD``: the gradients of stage 2, summed over all micro-batches, are reduced over the devices
    that hold the stage. ``2UNSHARD``: its parameters are gathered; ``2RESHARD``: what was gathered is let go
    of. ``micro_batch``: of which alone it is.
    """

    stage: int
    kind: CollectiveKind
    micro_batch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"


class Transfer(NamedTuple):
    """``2SEND_F0``: stage 2 sends what its forward of micro-batch 0 made; ``3RECV_F0``: stage 3 receives it.

    B stands for the gradient, which goes the other way.
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
_S = TypeVar("_S", bound=Step)
Steps = tuple[tuple[Step, ...], ...]
"""For each rank its actions, sends, receives and collectives in order."""

_FORMS = {
    Action: re.compile(r"(\d+)([FBIWO])(\d+)"),
    Collective: re.compile(r"(\d+)(UNSHARD|RESHARD|REDUCE_GRAD)(\d*)"),
    Transfer: re.compile(r"(\d+)(SEND_F|RECV_F|SEND_B|RECV_B)(\d+)"),
}


def parse_action(text: str) -> Action | Collective:
    """What a ``pipe.action`` runs. Raises BadAction."""
    return _parsed(text, Action, Collective)


def parse_step(text: str) -> Step:
    """An action, a transfer or a collective. Raises BadAction."""
    return _parsed(text, Action, Collective, Transfer)


def _parsed(text: str, *forms: type[_S]) -> _S:
    for form in forms:
        if match := _FORMS[form].fullmatch(text.strip()):
            return form(int(match[1]), match[2], int(match[3]) if match[3] else None)  # type: ignore[arg-type]
    raise BadAction(text=text)
