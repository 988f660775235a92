"""When prices cannot come from a few layers, so that each layer is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardc.diagnostics.base import ShardcError
from shardc.passes.search.fold import NotFolded
from shardc.planning.depth.blend import NotAffine
from shardc.runtime.report.logs import TIMING

T = TypeVar("T")


def unless_refused(price: Callable[[], T]) -> T | None:
    """Return a price; None if each layer must be compiled. That compile raises the errors of the model."""
    try:
        return price()
    except NotAffine as error:
        log_whole(str(error))
    except NotFolded as error:
        log_whole(f"its {error} differ from those of few layers")
    except ShardcError as error:
        log_whole(next(iter(str(error).splitlines())))
    return None


def log_whole(problem: str) -> None:
    """Log why each layer is compiled."""
    TIMING.debug("plan: each layer is compiled: %s", problem)
