"""A stage's communication of parameters and gradients over a mesh's other axes, as actions."""

import re
from typing import Literal, NamedTuple

from shardc.dialects.pipe.action import Action

CollectiveKind = Literal["UNSHARD", "RESHARD", "REDUCE_GRAD"]
COLLECTIVE_KINDS: dict[str, str] = {
    "UNSHARD": "gather of parameters",
    "RESHARD": "release of gathered parameters",
    "REDUCE_GRAD": "reduction of gradients",
}

_TEXT = re.compile(r"(\d+)(UNSHARD|RESHARD|REDUCE_GRAD)(\d*)")


class Collective(NamedTuple):
    """``2REDUCE_GRAD``: the gradients of stage 2, summed over all micro-batches, are reduced over the devices
    that hold the stage. ``2UNSHARD``: its parameters are gathered; ``2RESHARD``: what was gathered is let go
    of. ``micro_batch``: of which alone it is.

    The words are those of ``torch.distributed.pipelining``.
    """

    stage: int
    kind: CollectiveKind
    micro_batch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"


def parse_action(text: str) -> Action | Collective:
    """What a ``pipe.action`` runs. Raises BadAction."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        return Action.parse(text)
    number = int(match[3]) if match[3] else None
    return Collective(int(match[1]), match[2], number)  # type: ignore[arg-type]  (one of CollectiveKind's)
