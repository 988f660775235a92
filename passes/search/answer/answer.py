"""Answer of a search: its certificate, the plan's bottleneck, and the cost of other shardings of products."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch_mlir import ir

from shardc.diagnostics.text import size_text, table

ATTRIBUTE = "dist.searched"
"""Attribute of a module: the answer as JSON."""
PRODUCTS, PASSES = "products", "memory"
"""Causes other than mesh axes."""
WORDS = {PRODUCTS: "products, attention among them,", PASSES: "passes over memory"}
CLEAR = 1e-3
"""Fractions of a step below this are not reported."""


@dataclass(frozen=True)
class RunnerUp:
    """Cheapest plan in which a product, or the equal products of several layers, has another sharding.

    ``module``: the product's module, with ``*`` for parts of the name that differ between layers. ``calls``:
    number of products. ``now``, ``other``: the dims that each mesh axis splits, in this plan and the other.
    ``more_s``: additional time of the step. ``least_s``: lower bound of it for any other sharding. ``fits``:
    True if the other plan fits into memory.
    """

    module: str
    calls: int
    now: str
    other: str
    more_s: float
    least_s: float
    fits: bool = True


@dataclass(frozen=True)
class Answer:
    """Result of a search.

    Args:
        seconds: Seconds of the step.
        bound_s: Lower bound of the seconds of any choice.
        why: Reason why the search stopped.
        nodes: Number of nodes, each with a choice between states.
        held_bytes: Largest number of bytes that a device holds at any counted point.
        capacity_bytes: Bytes of a device's memory.
        causes: Parts of ``seconds``: products, passes over memory, and waiting along each mesh axis.
        percent_s: Upper bound of the seconds that 1% more memory saves; 0 if memory suffices.
        runners_up: Best other shardings of the products that take the most time.
        others: Number of products without a runner-up, because they take less time.
    """

    seconds: float
    bound_s: float
    why: str
    nodes: int
    held_bytes: float
    capacity_bytes: float
    causes: tuple[tuple[str, float], ...]
    percent_s: float = 0.0
    runners_up: tuple[RunnerUp, ...] = ()
    others: int = 0

    @property
    def gap(self) -> float:
        """Relative gap: upper bound of the fraction that another choice could save."""
        return max(0.0, 1 - self.bound_s / self.seconds) if self.seconds else 0.0

    def write(self, module: ir.Module) -> None:
        """Write the answer to a module."""
        text = json.dumps(asdict(self))
        module.operation.attributes[ATTRIBUTE] = ir.StringAttr.get(text, module.context)

    @staticmethod
    def read(module: ir.Module) -> Answer | None:
        """Return the answer on a module; None if its plan was not searched."""
        attributes = module.operation.attributes
        return Answer.of(json.loads(attributes[ATTRIBUTE].value)) if ATTRIBUTE in attributes else None

    @staticmethod
    def of(data: Mapping[str, Any]) -> Answer:
        """Return the answer from a mapping of :func:`dataclasses.asdict`."""
        causes = tuple((str(name), float(seconds)) for name, seconds in data["causes"])
        runners_up = tuple(RunnerUp(**row) for row in data["runners_up"])
        return Answer(**{**data, "causes": causes, "runners_up": runners_up})

    def certificate(self) -> str:
        """Return text about the result, the bound on all other choices, and why the search stopped."""
        return (
            f"estimated time {_ms(self.seconds)} (calls, and collectives that do not overlap with them); "
            f"no plan takes less than {_ms(self.bound_s)} (gap {self.gap:.2%}); the search considered "
            f"{self.nodes:,} choices between ways to shard calls; a device holds at most "
            f"{size_text(self.held_bytes)}; the search ended: {self.why}"
        )

    def render(self) -> list[str]:
        """Return text about the plan's bottleneck, and the runner-up of each product."""
        return [self.bound(), *self._runners_up()]

    def bound(self) -> str:
        """Return the plan's bottleneck: memory if more of it would save time, else the largest cause of
        time.
        """
        if self.percent_s > 0:
            held = f"{size_text(self.held_bytes)} of {size_text(self.capacity_bytes)}"
            return f"memory limits the plan: it needs {held}, and 1% more saves at most {_ms(self.percent_s)}"
        name, seconds = max(self.causes, key=lambda cause: cause[1], default=("", 0.0))
        if not seconds:
            return "nothing limits the plan: it takes no time"
        what = WORDS.get(name, f"the links along {name!r}")
        return f"{what} limit the plan: {seconds / self.seconds:.0%} of the step; memory suffices"

    def _runners_up(self) -> list[str]:
        if not self.runners_up:
            return []
        more = f"; {self.others} that take less time are not shown" if self.others else ""
        title = f"products sharded otherwise: the choice, the best alternative, the step with it{more}"
        return [title, *table([self._row(runner) for runner in self.runners_up], right=(1, 4, 5))]

    def _row(self, runner: RunnerUp) -> tuple[str, ...]:
        part = f"{runner.more_s / self.seconds:+.1%}" if self.seconds else ""
        is_open = runner.more_s - runner.least_s > CLEAR * self.seconds
        notes = [f"{_ms(runner.least_s)} at least"] * is_open + ["does not fit"] * (not runner.fits)
        cuts = f"{runner.calls} x", runner.now, runner.other
        return runner.module, *cuts, f"{runner.more_s * 1e3:+.3f} ms", part, ", ".join(notes)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
