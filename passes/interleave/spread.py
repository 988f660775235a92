"""Propagation of storage layouts from a few parameters to all values that share their dims."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.moves import PartsMove, read_move
from shardc.passes.interleave.rows import RESHAPES, Rows, read_rows
from shardc.passes.manager.attributes import observed
from shardc.passes.manager.program import Node, Program, carried_values
from shardc.passes.pad.call import placed_factors
from shardc.passes.pad.image_pads import IMAGE_DIMS
from shardc.runtime.check import STATE_ROLES

Layout = dict[int, Parts]
"""Dims of a value that are stored as parts; empty for most values. A single part is a sharded dim in its
usual order; it matters if a reshape merges the dim with another one."""


def stored(layout: Layout) -> Layout:
    """Return the dims that are not stored in their usual order."""
    return {dim: parts for dim, parts in layout.items() if not parts.in_order}


def is_causal(node: Node) -> bool:
    """Return whether a node is attention over whole sequences with only a causal mask, or its gradient."""
    spec = node.spec
    if spec.target not in ("shardc.attention", "shardc.attention_backward"):
        return False
    square = spec["q"].shape[2] == spec["k"].shape[2] and spec["q_offset"] == 0
    return bool(square and spec["causal"] and spec["mask"] is None)


def is_image(node: Node) -> bool:
    """Return whether a node has images (convolutions, pools, pads) or sequences with halos."""
    spec = node.spec
    is_operator = spec.target.startswith("aten.") and spec.target not in RESHAPES
    are_images = any(len(t.shape) >= IMAGE_DIMS for t in spec.tensors)
    return is_operator and node.known and (are_images or bool(node.rule.traded))


@dataclass(frozen=True)
class CallLayouts:
    """Layouts of a call's operands and results, and its ``move`` of the parts ``whole`` of its large tensor.

    For a reshape of a tensor that is not in order, ``rows`` has the dims that it merges or splits.
    """

    operands: list[Layout]
    results: list[Layout]
    move: PartsMove | None = None
    whole: Parts | None = None
    rows: tuple[Rows, ...] = ()
    folded: int = 0
    """Number of ways of causal attention on folded rows; 0 for other calls."""


class LayoutSpread:
    """Layouts of all values, propagated to a fixed point from each of ``rounds`` of seeds in turn.

    A dim keeps the first parts that it gets.
    """

    def __init__(self, program: Program, *rounds: Mapping[int, Layout]) -> None:
        self._program = program
        self._now: list[Layout] = [{} for _ in program.types]
        keys = list(zip(program.argument_keys(), program.arguments, strict=True))
        self._plain = {v for (role, _), v in keys if role not in STATE_ROLES}
        self._state = set(program.arguments) - self._plain
        named = {name: v for (role, name), v in keys if role == "param"}
        same = carried_values(program)
        for value, parameter in _gradients(program):
            if parameter in named:
                same.append((named[parameter], value))
            else:
                self._plain.add(value)
        self._same: dict[int, list[int]] = defaultdict(list)
        for a, b in same:
            self._same[a].append(b)
            self._same[b].append(a)
        for seeds in rounds:
            self.add(seeds)

    def add(self, seeds: Mapping[int, Layout]) -> None:
        """Propagate one more round of seeds."""
        for value, layout in seeds.items():
            self._now[value] = {**layout, **self._now[value]}
        self._run(list(seeds))

    def layout(self, value: int) -> Layout:
        return self._now[value]

    def of_call(self, number: int) -> CallLayouts:
        node = self._program.nodes[number]
        factors = self._factors(node)
        operands, results = (
            [
                {d: factors[dim[0]] for d, dim in enumerate(dims) if len(dim) == 1 and dim[0] in factors}
                for dims in tensors
            ]
            for tensors in (node.rule.operands, node.rule.results)
        )
        if is_causal(node):
            ways = self._fold(node, operands, results)
            return CallLayouts(operands, results, folded=ways)
        if is_image(node):
            self._blocks(node, (*operands, *results))
        rows = self._rows(node, operands, results)
        move = read_move(node)
        if move is None:
            return CallLayouts(operands, results, rows=rows)
        whole = self._now[(node.operands if move.takes else node.results)[0]].get(move.dim)
        whole = whole or self._joined(node, move)
        parts = None if whole is None else move.parts(whole)
        if whole is None or parts is None:
            return CallLayouts(operands, results)
        big, small = (operands, results) if move.takes else (results, operands)
        big[0][move.dim] = whole
        for layout, part in zip(small, parts, strict=True):
            layout[move.dim] = part
        return CallLayouts(operands, results, move, whole)

    def _joined(self, node: Node, move: PartsMove) -> Parts | None:
        """Return the parts of what a call concatenates: those of all operands, if they have equal ways.

        They are folded if the operands are. Only equal parts can be.
        """
        found = [self._now[value].get(move.dim) for value in node.operands]
        if move.takes or len(found) < 2 or None in found:
            return None
        parts = [p for p in found if p is not None]
        sizes = tuple(size for p in parts for size in p.sizes)
        ways, folded = {p.ways for p in parts}, {p.folded for p in parts}
        if len(ways) > 1 or len(folded) > 1 or (True in folded and len(set(sizes)) > 1):
            return None
        return Parts(ways.pop(), sizes, folded.pop())

    def _fold(self, node: Node, operands: list[Layout], results: list[Layout]) -> int:
        """Write the layouts of causal attention on folded rows; return its ways, or 0 if not folded."""
        found = [self._now[value].get(2) for value in node.values]
        parts = next((p for p in found if p is not None and p.folded), None)
        if parts is None:
            return 0
        for layout in (*operands, *results):
            layout[2] = parts
        return parts.ways

    def _blocks(self, node: Node, layouts: Iterable[Layout]) -> None:
        """Write the layouts of images that a call resizes: blocks of pixels stay blocks."""
        ways: dict[str, int] = {}
        tensors = (*node.rule.operands, *node.rule.results)
        for dims, value in zip(tensors, node.values, strict=True):
            for d, parts in self._now[value].items():
                if parts.in_order and dims[d] and node.rule.sizes[dims[d][0]] % parts.ways == 0:
                    ways.setdefault(dims[d][0], parts.ways)
        for dims, value, layout in zip(tensors, node.values, layouts, strict=True):
            for d, factors in enumerate(dims):
                if factors and factors[0] in ways.keys() - node.rule.replicate:
                    parts = Parts(ways[factors[0]], (self._program.types[value].shape[d],))
                    layout.setdefault(d, parts)

    def _rows(self, node: Node, operands: list[Layout], results: list[Layout]) -> tuple[Rows, ...]:
        """Write the layouts of a reshape of a sharded dim that is not the first; return its moves."""
        found = []
        for move in read_rows(node):
            large, small = (node.operands[0], node.results[0])[:: 1 if move.takes else -1]
            whole = self._now[large].get(move.dim) or move.merged(self._now[small])
            apart = move.apart(whole)
            if whole is None or apart is None:
                continue
            place, part = apart
            of_large, of_small = (operands[0], results[0])[:: 1 if move.takes else -1]
            of_large[move.dim], of_small[move.first + place] = whole, part
            if place:
                found.append(Rows(move, place, part.ways))
        return tuple(found)

    def _factors(self, node: Node) -> dict[str, Parts]:
        """Return the factors of a call that are stored as parts. The call treats their positions alike."""
        found: dict[str, Parts] = {}
        tensors = (*node.rule.operands, *node.rule.results)
        for dims, value in zip(tensors, node.values, strict=True):
            for d, parts in self._now[value].items():
                old = found.get(dims[d][0]) if len(dims[d]) == 1 else None
                if len(dims[d]) == 1 and (old is None or old.in_order):
                    found[dims[d][0]] = parts
        if not found or not node.known:
            return {}
        # Factors that share a dim are not stored as each would be in a dim of its own.
        joined = {f for dims in tensors for dim in dims if len(dim) > 1 for f in dim}
        fixed, placed = node.rule.replicate | joined, placed_factors(node.spec)
        return {f: p for f, p in found.items() if f not in fixed and (p.in_order or f not in placed)}

    def _run(self, changed: list[int]) -> None:
        producer, users = self._program.producer, self._program.users
        queue = deque(changed)
        while queue:
            value = queue.popleft()
            queue.extend(other for other in self._same[value] if self._take(other, self._now[value]))
            for number in (*users[value], *([producer[value]] if producer[value] >= 0 else [])):
                node, found = self._program.nodes[number], self.of_call(number)
                layouts = zip(node.values, (*found.operands, *found.results), strict=True)
                queue.extend(v for v, layout in layouts if self._take(v, layout))

    def _take(self, value: int, layout: Layout) -> bool:
        """Add the dims of ``layout`` that a value's layout lacks; return whether that changed it.

        A state gets at most one dim that is not in order, because edges record only one.
        """
        now, taken = self._now[value], False
        for dim, parts in layout.items():
            is_state = value in self._same or value in self._state
            full = value in self._plain or (is_state and (parts.folded or bool(stored(now))))
            if dim not in now and (parts.in_order or not full):
                now[dim] = parts
                taken = True
        return taken


def _gradients(program: Program) -> list[tuple[int, str]]:
    """Return the values visible to users, each with the parameter whose gradient it is, or an empty name."""
    return [
        (node.results[number], name.removeprefix("grad:") if name.startswith("grad:") else "")
        for node in program.nodes
        for name, number in observed(node.op)
    ]
