"""Cost of a call on a device, for each way to shard it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from shardc.cost.memory_passes import ROWS_READ, elements, is_pointwise
from shardc.cost.ops import KEPT_RATE, ROWS_TIME, DeviceRates, Product, attention_s, other_flops_s, product_s
from shardc.cost.work import MATMULS, computed_flops, flops, matmul_sizes
from shardc.dialects.aten.schema import may_draw
from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import Layout, local_shape, parts, parts_of
from shardc.passes.search.ways import Way, made_of, needed_of


class Passes:
    """How a program's calls share passes over memory.

    ``is_free``: whether a call takes no time. ``moved``: for each operand and result of a call that is a pass
    over memory, whether it goes through memory; empty for other calls. ``phases``: of each call. ``parts``:
    for each call, its part of the bytes that its pass moves, which is also its part of a cache.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.phases = [phase_of(node.op) for node in program.nodes]
        is_dist = [node.op.name.startswith("dist.") for node in program.nodes]
        is_pass = [_is_pass(node, dist) for node, dist in zip(program.nodes, is_dist, strict=True)]
        pairs = zip(program.nodes, is_dist, strict=True)
        self.is_free = [dist or node.spec.target in VIEWS for node, dist in pairs]
        self._own = _passes(program, is_pass)
        self.moved = [self._moved(number) if of else () for number, of in enumerate(is_pass)]
        self.parts = self._parts()

    def _moved(self, number: int) -> tuple[bool, ...]:
        program, own = self.program, self._own
        node, mine = program.nodes[number], own[number]
        read = [program.producer[v] < 0 or own[program.producer[v]] != mine for v in node.operands]
        users = [program.users[v] for v in node.results]
        written = [not of or any(own[user] != mine for user in of) for of in users]
        return (*read, *written)

    def _parts(self) -> list[float]:
        bytes_of, total = list[float](), dict[int, float]()
        for node, moved, own in zip(self.program.nodes, self.moved, self._own, strict=True):
            values = zip(node.values, moved, strict=False)
            bytes_of.append(
                float(sum(self.program.types[v].size_bytes for v, is_moved in values if is_moved))
            )
            total[own] = total.get(own, 0.0) + bytes_of[-1]
        pairs = zip(bytes_of, self._own, strict=True)
        return [moved / total[own] if moved else 0.0 for moved, own in pairs]


class Work:
    """Seconds of calls, by their local shapes.

    A pointwise call shares a pass over memory with the producer of its operand if both have equally many
    elements. Values within a pass are neither written nor read.

    A call inside the loop of micro-batches counts once per micro-batch. A stage of a pipeline runs its share
    of the calls (:meth:`SearchAxes.busy`). ``weights``: the calls that only gradients of weights need.
    """

    def __init__(
        self, passes: Passes, axes: SearchAxes, rates: DeviceRates, weights: Collection[int] = ()
    ) -> None:
        self._passes, self._axes, self._sizes, self._rates = passes, axes, axes.sizes, rates
        self._of_weights, self._weights = axes.of_weights, weights
        self._known: dict[object, np.ndarray] = {}

    def on(self, rates: DeviceRates) -> Work:
        """Return the seconds on other devices."""
        return Work(self._passes, self._axes, rates, self._weights)

    def seconds(self, number: int, ways: Sequence[Way]) -> np.ndarray:
        """Return the seconds of node ``number`` in each of ``ways``."""
        if self._passes.is_free[number]:
            return np.zeros(len(ways))
        node, moved = self._passes.program.nodes[number], self._passes.moved[number]
        axes = self._of_weights if number in self._weights else self._axes
        part = self._passes.parts[number]
        key = id(ways), node.spec, self._passes.phases[number], moved, part, axes.is_weights
        if key not in self._known:
            turns = [axes.turns_of(way.choices) for way in ways]
            times = np.array([count * axes.busy(count) for count in turns])
            self._known[key] = times * (
                self._pass_s(node, moved, part, ways)
                if moved
                else np.array([self._products_s(node, way) for way in ways])
            )
        return self._known[key]

    def _products_s(self, node: Node, way: Way) -> float:
        spec, last = node.spec, node.spec.tensors[-1]
        sizes = (self._passes.program.types[value].size_bytes for value in node.values)
        layouts = (*way.operands, *way.results)
        moved = sum(size / parts(layout, self._sizes) for size, layout in zip(sizes, layouts, strict=True))
        if spec.target in MATMULS:
            left, right = (
                local_shape(layout, tensor.shape, self._sizes)
                for layout, tensor in zip(way.operands[-2:], spec.tensors[-2:], strict=True)
            )
            return product_s(Product(*matmul_sizes(left, right), last.dtype.itemsize), self._rates)
        arithmetic, width = computed_flops(spec) * way.share, spec.tensors[0].dtype.itemsize
        if "attention" in spec.target:
            is_backward = phase_of(node.op) == "backward"
            return attention_s(arithmetic, moved, width, is_backward, self._rates)
        return other_flops_s(arithmetic, moved, width, self._rates)

    def _pass_s(self, node: Node, moved: tuple[bool, ...], part: float, ways: Sequence[Way]) -> np.ndarray:
        """Return the seconds of a call's part of a pass over memory in each of ``ways``."""
        sizes = [self._bytes(v, needed_of(ways, place)) for place, v in enumerate(node.operands)]
        made = [self._bytes(v, made_of(ways, place)) for place, v in enumerate(node.results)]
        few = ROWS_READ.get(node.spec.target)
        if few is not None:
            sizes[few] = np.minimum(sizes[few], sum(made))
        passed = sum((s for s, is_moved in zip([*sizes, *made], moved, strict=True) if is_moved), np.zeros(1))
        slower = 1.0 if is_pointwise(node.spec) and not may_draw(node.spec.target) else ROWS_TIME
        kept = np.minimum(passed, part * self._rates.cache_bytes)
        passed = passed - kept + kept / KEPT_RATE
        return slower * passed / (self._rates.stream_reached * self._rates.memory_bytes_s)

    def _bytes(self, value: int, layouts: tuple[Layout, ...]) -> np.ndarray:
        """Return the bytes of a device's block of a value in each of ``layouts``."""
        return self._passes.program.types[value].size_bytes / parts_of(layouts, self._sizes)


def _is_pass(node: Node, is_dist: bool) -> bool:
    return not is_dist and node.spec.target not in VIEWS and not flops(node.spec)


def _passes(program: Program, is_pass: Sequence[bool]) -> list[int]:
    """Return, for each call, the first call of its pass over memory, as the cost of a step counts passes.

    A call joins the pass that produces its latest operand, if that pass has equally many elements and only
    pointwise calls. Views belong to no pass; their source is used instead.
    """
    found, ends = [], set[int]()
    maker = {value: -1 for value in program.arguments}
    for number, node in enumerate(program.nodes):
        latest = max((maker[v] for v in node.operands), default=-1)
        if node.spec.target in VIEWS:
            found.append(latest)
            maker |= dict.fromkeys(node.results, latest)
            continue
        joins = is_pass[number] and latest >= 0 and latest not in ends
        joins = joins and elements(program.nodes[latest].spec) == elements(node.spec)
        own = latest if joins else number
        if not (is_pass[number] and is_pointwise(node.spec)):
            ends.add(own)
        found.append(own)
        maker |= dict.fromkeys(node.results, own)
    return found
