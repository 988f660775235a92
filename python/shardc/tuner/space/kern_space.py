"""``kern-space``: the legal configurations of each kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.backends.body.extract import extract_kernels, kernels
from shardc.backends.tuning.space import Space
from shardc.passes.manager.base import Pass
from shardc.tuner.space.of_task import space_of_module


@dataclass(frozen=True)
class KernSpace(Pass):
    """Annotates each ``kern.kernel`` with its tuning space. ``kern.space`` has the sketches, each with the
    values of its parameters; ``kern.points`` the number of legal combinations; ``kern.best`` the combination
    that the cost model ranks first. ``target``: ``cpu``, or a GPU's name such as ``sm_90``. ``threads``:
    number of CPU threads.

        kern.space = {columns = {rows = array<i64: 16, 32, 64>}}, kern.points = 3 : i64, kern.best =
        "columns(rows=64)"
    """

    name: ClassVar[str] = "kern-space"
    target: str = "cpu"
    threads: int = 1

    def run(self, module: ir.Module) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernels(module):
                _note(kernel, space_of_module(extract_kernels([kernel]), self.target, self.threads))


def _note(kernel: ir.Operation, space: Space) -> None:
    said = {
        sketch.name: ir.DictAttr.get({p.name: ir.DenseI64ArrayAttr.get(p.values) for p in sketch.parameters})
        for sketch in space.sketches
    }
    kernel.attributes["kern.space"] = ir.DictAttr.get(said)
    points = list(space.points())
    best = min(points, key=lambda point: (space.estimate_s(point), point))
    kernel.attributes["kern.points"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(points))
    kernel.attributes["kern.best"] = ir.StringAttr.get(str(best))
