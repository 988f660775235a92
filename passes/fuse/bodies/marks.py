"""Attributes of kernels that name their calls, the phase of the step and the sharding of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_mlir import ir

from shardc.dialects.dist.build import string
from shardc.dialects.dist.sharding import ShardingAttr
from shardc.passes.fuse.reading.graph import Step, Value
from shardc.passes.manager.attributes import drop_attributes, observed


class Marks:
    """Of the kernels of block ``number``, which are called what they hold and the next of ``names``."""

    def __init__(self, number: int, names: Iterator[int]) -> None:
        self.number, self._names = number, names

    def name(self, steps: Sequence[Step]) -> str:
        bases = dict.fromkeys(step.target.split(".")[1].strip("_") for step in steps)
        return self.numbered("_".join(list(bases)[:3]))

    def numbered(self, stem: str) -> str:
        """A name that no other kernel has."""
        return f"{stem}_{next(self._names)}"

    def write(self, op: ir.Operation, steps: Sequence[Step], phase: ir.Attribute | None) -> None:
        """Says which calls a kernel stands for."""
        calls = [f"{self.number}.{s.number}" for s in steps]
        for name, texts in (("kern.ops", [s.target for s in steps]), ("kern.calls", calls)):
            op.attributes[name] = ir.ArrayAttr.get([string(t, op.context) for t in texts], op.context)
        if phase is not None:
            op.attributes["dist.phase"] = phase
        else:  # of the kernel that it is a copy of
            drop_attributes(op, "dist.phase")


def phase_of(op: ir.Operation) -> ir.Attribute | None:
    return op.attributes.get("dist.phase")


def name_results(unpack: ir.Operation, results: list[Value], last: ir.Value | None = None) -> None:
    """Move the frontend's names (``grad:w#1``) and shardings of results to the op that makes them now.

    ``last``: what one more result is shown as, which has its last dim alone.
    """
    found, shardings = [], []
    for position, value in enumerate(results):
        if value.ir is None:
            continue
        attributes, number = value.ir.owner.attributes, ir.OpResult(value.ir).result_number
        if "dist.shardings" in attributes:
            shardings.append(attributes["dist.shardings"][number])
        found += [f"{name}#{position}" for name, index in observed(value.ir.owner) if index == number]
    if last is not None and "dist.shardings" in last.owner.attributes:
        mesh, dims, partial = ShardingAttr(last.owner.attributes["dist.shardings"][0]).params
        dims = ir.ArrayAttr.get(list(ir.ArrayAttr(dims))[-1:], unpack.context)
        shardings.append(ShardingAttr.get(mesh, dims, partial, context=unpack.context))
    if found:
        if len(shardings) == len(unpack.results):
            unpack.attributes["dist.shardings"] = ir.ArrayAttr.get(shardings, unpack.context)
        unpack.attributes["dist.name"] = ir.StringAttr.get(",".join(found), unpack.context)
