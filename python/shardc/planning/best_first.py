"""Prices of plans, those first that may fit. Plans that cannot be the best are not compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardc.diagnostics.base import ShardcError
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price


@dataclass
class Prices:
    """Prices of plans.

    ``refused``: plans that cannot be made, and why. ``left_out``: plans without a price, with the least bytes
    that each needs on a device. ``is_hopeless``: whether by these bounds no plan fits; then only one has a
    price. ``is_stopped``: whether Ctrl-C ended the work.
    """

    priced: list[Price] = field(default_factory=list)
    refused: list[tuple[Candidate, str]] = field(default_factory=list)
    left_out: list[tuple[Candidate, float]] = field(default_factory=list)
    is_hopeless: bool = False
    is_stopped: bool = False


def best_first(
    candidates: Sequence[tuple[Candidate, float]],
    capacity_bytes: float,
    price: Callable[[Candidate], Price],
) -> Prices:
    """Price plans, the ones that may need the least memory first, until no other can be better.

    A plan that fits is better than one that does not; of plans that do not fit the better needs less memory.

    Args:
        candidates: Plans, each with a lower bound of the bytes that it needs on a device.
        capacity_bytes: Memory of a device.
        price: Compiles a plan and returns its price. Plans for which it raises ShardcError are refused; if it
            raises for all, the last error is raised.
    """
    found, least_needed = Prices(), float("inf")
    # A pipeline takes longer to compile than other plans.
    ordered = sorted(candidates, key=lambda pair: (max(pair[1], capacity_bytes), "pipeline" in pair[0].plan))
    found.is_hopeless = len(ordered) > 1 and ordered[0][1] > capacity_bytes
    for candidate, least_bytes in ordered:
        is_settled = bool(found.priced) and (found.is_hopeless or found.is_stopped)
        if is_settled or (least_bytes > capacity_bytes and least_bytes >= least_needed):
            found.left_out.append((candidate, least_bytes))
            continue
        try:
            found.priced.append(price(candidate))
        except KeyboardInterrupt:
            if not found.priced:
                raise
            found.is_stopped = True
            found.left_out.append((candidate, least_bytes))
            continue
        except ShardcError as error:
            found.refused.append((candidate, next(iter(str(error).splitlines()))))
            if len(found.refused) == len(ordered):
                raise
            continue
        least_needed = min(least_needed, max(found.priced[-1].needed_bytes, capacity_bytes))
    return found
