"""Steps of a pipeline's ranks, in the notation of ``torch.distributed.pipelining``.

An action runs a stage for a micro-batch. Collectives gather a stage's parameters or reduce its gradients.
Transfers are the sends and receives between actions.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeVar

from shardc.diagnostics.passes.pipeline import BadAction

Kind = Literal["F", "B", "I", "W", "O"]
"""Kinds of actions.

F is forward, B the whole backward, I the part of backward that computes the gradient of the stage's input,
and W the part for gradients of weights. Zero-bubble papers call I and W B and W. O is the optimizer in a
schedule with updates; no rank's order lists it, since ``Schedule.updates`` says where it runs.
"""
KINDS: dict[str, str] = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
OPTIMIZER = "O"
CollectiveKind = Literal["UNSHARD", "RESHARD", "REDUCE_GRAD"]
COLLECTIVE_KINDS: dict[str, str] = {
    "UNSHARD": "gather of parameters",
    "RESHARD": "release of gathered parameters",
    "REDUCE_GRAD": "reduction of gradients",
}
TransferKind = Literal["SEND_F", "RECV_F", "SEND_B", "RECV_B", "EVICT", "ACCEPT", "RETURN", "LOAD"]
EVICTS: tuple[TransferKind, ...] = ("EVICT", "ACCEPT", "RETURN", "LOAD")
"""Kinds of transfers of evicted activations (:mod:`shardc.dialects.pipe.eviction`)."""


class Action(NamedTuple):
    """An action. ``2F0`` is the forward of micro-batch 0 in stage 2; ``2O1`` is its optimizer after group
    1.
    """

    stage: int
    kind: Kind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @staticmethod
    def parse(text: str) -> Action:
        """Parse the text of an action. Raises BadAction."""
        return _parsed(text, Action)


class Collective(NamedTuple):
    """A collective of a stage's parameters or gradients over the devices that hold the stage.

    ``2REDUCE_GRAD`` reduces the gradients of stage 2, summed over all micro-batches. ``2UNSHARD`` gathers its
    parameters, and ``2RESHARD`` frees the gathered ones. ``micro_batch`` is set if it is for that micro-batch
    alone.
    """

    stage: int
    kind: CollectiveKind
    micro_batch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"


class Transfer(NamedTuple):
    """A send or receive. ``2SEND_F0``: stage 2 sends the result of its forward of micro-batch 0.

    ``3RECV_F0``: stage 3 receives it. With B it is the gradient, which goes the other way. In a graph of
    stages ``2SEND_F0:4`` also says that it goes to stage 4, and ``4RECV_F0:2`` that it comes from stage 2.

    ``0EVICT1``: stage 0 sends the activations of micro-batch 1 to another rank, which receives (``0ACCEPT1``)
    and sends them back (``0RETURN1``); ``0LOAD1``: stage 0 receives them.
    """

    stage: int
    kind: TransferKind
    micro_batch: int
    other: int | None = None

    @property
    def sends(self) -> bool:
        return self.kind.startswith("SEND") or self.kind in ("EVICT", "RETURN")

    @property
    def evicts(self) -> bool:
        """Whether evicted activations are transferred."""
        return self.kind in EVICTS

    def __str__(self) -> str:
        other = "" if self.other is None else f":{self.other}"
        return f"{self.stage}{self.kind}{self.micro_batch}{other}"


Step = Action | Transfer | Collective
_S = TypeVar("_S", bound=Step)
Steps = tuple[tuple[Step, ...], ...]
"""For each rank, its actions, sends, receives and collectives in order."""

_FORMS = {
    Action: re.compile(r"(\d+)([FBIWO])(\d+)"),
    Collective: re.compile(r"(\d+)(UNSHARD|RESHARD|REDUCE_GRAD)(\d*)"),
    Transfer: re.compile(r"(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|EVICT|ACCEPT|RETURN|LOAD)(\d+)(?::(\d+))?"),
}


def parse_action(text: str) -> Action | Collective:
    """Parse the text of a ``pipe.action``. Raises BadAction."""
    return _parsed(text, Action, Collective)


def parse_step(text: str) -> Step:
    """Parse the text of an action, a transfer or a collective. Raises BadAction."""
    return _parsed(text, Action, Collective, Transfer)


def _parsed(text: str, *forms: type[_S]) -> _S:
    for form in forms:
        if match := _FORMS[form].fullmatch(text.strip()):
            stage, kind, *numbers = match.groups()
            return form(int(stage), kind, *(int(n) if n else None for n in numbers))  # type: ignore[arg-type]
    raise BadAction(text=text)
