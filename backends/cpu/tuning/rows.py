"""Space of row nests: values to store or recompute, prefetching, non-temporal stores, sums over rows, and
tiles.

The loops are those of ``backends/cpu/emit/row.py``, ``stages.py`` and ``streams.py``. The estimate adds up
the passes of a row: the larger of arithmetic and memory traffic for each pass or, with prefetching, the
larger of all arithmetic and all traffic of far memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from shardc.backends.cpu.config import Config
from shardc.backends.cpu.tuning.body import Loops, Pass
from shardc.backends.tuning.sketches import NEVER, cache_of, that_matter
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.machine import Cpu

FILL = 0.5
"""Part of far memory's traffic that arithmetic hides without prefetching."""
AWAY = 0.02
"""Penalty of a value other than the default: smaller gains are noise."""
COMMON = {
    "far_bytes": (1, NEVER),
    "streamed_bytes": (1, NEVER),
    "piece": (64, 128, 256, 512, 1024),
    "recompute_cost": (2, 6, 12, 24, NEVER),
}
OWN = {
    "rows": ("columns", (16, 32, 64, 128, 256, 512)),
    "block": ("sum", (1024, 4096, 8192, 32768)),
    "tile": ("turned", (16, 32, 64, 128, 256)),
}
"""Parameter that only one structure has -> its values."""


def sketch(loops: Loops, threads: int, machine: Cpu) -> Sketch:
    """Return the configurations of a nest without a contraction."""
    default = asdict(Config())
    own = _own(loops)
    candidates = dict(COMMON) if not own else {own: OWN[own][1], **COMMON}
    if threads > 1:
        candidates["work_per_thread"] = tuple(1 << n for n in range(12, 24, 2))

    def effect(values: Mapping[str, int]) -> object:
        config = Config.of({**default, **values})
        return loops.shape(config), loops.threads(config, threads)

    remembered = cache_of(effect)
    parameters = that_matter(candidates, {n: default[n] for n in candidates}, remembered)
    nest = _Rows(loops, threads, machine, parameters, default, remembered)
    return Sketch(_name(loops, own), parameters, nest.refusal, nest.estimate_s, nest.counts)


def _name(loops: Loops, own: str | None) -> str:
    if own:
        return OWN[own][0]
    if loops.graph.flat:
        return "flat"
    sums = any(r.is_reduction for r in loops.nest.roots)
    return "rows" if sums or len(loops.passes(Config())) > 1 else "pointwise"


def _own(loops: Loops) -> str | None:
    if loops.is_carried:
        return "block" if loops.nest.split else "rows"
    return "tile" if loops.nest.transposed else None


@dataclass(frozen=True, eq=False)
class _Rows:
    loops: Loops
    threads: int
    machine: Cpu
    parameters: tuple[Parameter, ...]
    default: Mapping[str, int]
    effect: Callable[[Mapping[str, int]], object]

    def refusal(self, values: Mapping[str, int]) -> str | None:
        """Refuse a value with the same effect as an earlier one. The default's value comes first."""
        effect = self.effect(values)
        for name, known in ((p.name, p.values) for p in self.parameters):
            value = values[name]
            first = sorted(known, key=lambda v: (v != self.default[name], v))
            for other in first[: first.index(value)] if value in first else ():
                if self.effect({**values, name: other}) == effect:
                    return f"{name} = {value} does what {other} does"
        return None

    def estimate_s(self, values: Mapping[str, int]) -> float:
        away = sum(values[p.name] != self.default[p.name] for p in self.parameters)
        return self._cycles(Config.of(values)) * (1 + AWAY * away) / self.machine.clock_hz

    def counts(self, values: Mapping[str, int]) -> Mapping[str, float]:
        """Return cycles of arithmetic and of far memory, and bytes in each direction."""
        config, loops = Config.of(values), self.loops
        rows, passes = max(1, loops.rows), loops.passes(config)
        near, far = self._near_and_far(config)
        moved = {
            name: sum(p.elements * getattr(p, name) for p in passes) * rows
            for name in ("kept", "written", "streamed")
        }
        ahead = any(p.ahead for p in passes)
        fetched = passes[0].elements * passes[0].read * rows if ahead else 0
        cut = sum(p.elements for p in passes if p.ahead or p.streamed) * rows / config.piece
        found = {"near": near * rows, "far": far * rows, "fetched": fetched, "pieces": cut}
        return {**found, **moved, "own": self._own(config, rows, 1)}

    def _near_and_far(self, config: Config) -> tuple[float, float]:
        """Return the cycles of a row: arithmetic with near caches, and far memory."""
        passes = self.loops.passes(config)
        size = max((p.elements for p in passes), default=1)
        found = [self._pass(each, number == 0, size) for number, each in enumerate(passes)]
        return sum(near for near, _ in found), sum(far for _, far in found)

    def _cycles(self, config: Config) -> float:
        loops, nest = self.loops, self.loops.nest
        threads = loops.threads(config, self.threads)
        rows = -(-max(1, loops.rows) // threads)
        arithmetic, far = self._near_and_far(config)
        share = 1 / threads if nest.split else 1.0
        ahead = any(p.ahead for p in loops.passes(config))
        hidden = min(arithmetic, far) * (0.85 - 16 / config.piece - config.piece / 8192 if ahead else FILL)
        total = (arithmetic + far - hidden) * rows * share
        total += self._own(config, rows, threads)
        total += (threads > 1) * (1500 * threads + self.machine.barrier * loops.is_carried)
        return total

    def _pass(self, p: Pass, is_first: bool, size: int) -> tuple[float, float]:
        """Return the cycles of arithmetic with near caches, and of far memory, for one pass of a row."""
        machine, lanes = self.machine, self.machine.vector_bytes / self.loops.item
        row = machine.rate(size * (p.read + p.kept + p.written))
        near = p.elements * (p.work * machine.addition + 0.5) / lanes
        near += p.elements * (p.kept + p.streamed) / row
        near += machine.loop * (1 + p.sums)
        far = p.elements * p.read / (machine.rate(self.loops.held) if is_first else row)
        results = machine.level(self.loops.held + self.loops.written)
        far += p.elements * p.written * (2 if results else 1) / machine.rates[results]
        far += p.elements * p.streamed / (machine.rates[3] * (1.0 if results == 3 else 0.6))
        near += (p.elements / 256) * 4 * (p.ahead or p.streamed > 0)
        if p.ahead and machine.level(self.loops.held) < 3:
            near += p.elements * p.read / 64
        return near, far

    def _own(self, config: Config, rows: int, threads: int) -> float:
        """Return the cycles of parts that only one structure has."""
        loops, machine = self.loops, self.machine
        lanes = machine.vector_bytes / loops.item
        if loops.is_carried and loops.nest.split:
            return (sum(p.elements for p in loops.passes(config)) / threads / config.block) * 4 * machine.loop
        if loops.is_carried:
            blocks = -(-rows // config.rows)
            joined = blocks * loops.sums * (2.5 / lanes + 3 * 4 / machine.rate(2 * loops.sums * 4))
            return joined + rows * loops.sums * 8 / machine.rate(loops.sums * 4) * 0.5
        if loops.nest.transposed:
            held = config.tile * config.tile * loops.item
            lines = max(1.0, 64 / (config.tile * loops.item))
            pieces = loops.held / max(1, held)
            moved = loops.held / threads / machine.rate(held) * lines
            return moved + pieces * (machine.loop + config.tile * 2)
        return 0.0
