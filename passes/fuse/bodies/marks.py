"""Attributes of kernels: their calls, the phase of the step, and the shardings of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_mlir import ir

from shardc.dialects.dist.build import string
from shardc.dialects.dist.sharding import ShardingAttr
from shardc.passes.fuse.reading.graph import Step, Value
from shardc.passes.manager.attributes import drop_attributes, observed


class Marks:
    """Writer of attributes for the kernels of block ``number``; ``names`` counts kernels for unique names."""

    def __init__(self, number: int, names: Iterator[int]) -> None:
        self.number, self._names = number, names

    def name(self, steps: Sequence[Step]) -> str:
        bases = dict.fromkeys(step.target.split(".")[1].strip("_") for step in steps)
        return self.numbered("_".join(list(bases)[:3]))

    def numbered(self, stem: str) -> str:
        """Return a unique name of a kernel."""
        return f"{stem}_{next(self._names)}"

    def write(self, op: ir.Operation, steps: Sequence[Step], phase: ir.Attribute | None) -> None:
        """Write the calls that a kernel stands for."""
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
    """Move the frontend's names (``grad:w#1``) and shardings of results to the kernel's unpack op.

    A result without a known layout, such as the flag of a bounds check, has ``unit`` instead of a sharding.
    ``last`` is the value behind an additional result, which has only the value's last dim.
    """
    found: list[str] = []
    for position, value in enumerate(results):
        if value.ir is not None:
            number = ir.OpResult(value.ir).result_number
            found += [f"{name}#{position}" for name, index in observed(value.ir.owner) if index == number]
    if not found:
        return
    shardings = [_sharding_of(value.ir) for value in results]
    if last is not None:
        shardings.append(_of_last_dim(_sharding_of(last)))
    if any(shardings):
        shardings += [None] * (len(unpack.results) - len(shardings))
        said = [sharding or ir.UnitAttr.get(unpack.context) for sharding in shardings]
        unpack.attributes["dist.shardings"] = ir.ArrayAttr.get(said, unpack.context)
    unpack.attributes["dist.name"] = ir.StringAttr.get(",".join(found), unpack.context)


def _sharding_of(value: ir.Value | None) -> ir.Attribute | None:
    """Return the sharding of ``value`` on the op that computes it."""
    if value is None or "dist.shardings" not in value.owner.attributes:
        return None
    return value.owner.attributes["dist.shardings"][ir.OpResult(value).result_number]


def _of_last_dim(sharding: ir.Attribute | None) -> ir.Attribute | None:
    if sharding is None:
        return None
    mesh, dims, partial = ShardingAttr(sharding).params
    dims = ir.ArrayAttr.get(list(ir.ArrayAttr(dims))[-1:], sharding.context)
    return ShardingAttr.get(mesh, dims, partial, context=sharding.context)
