"""Record of how a step's program was fused, stored with its level 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.region import Verdict
from shardc.passes.manager.program import find_function

ATTRIBUTE = "kern.fusion"
_LISTS = ("forbid", "force", "without")


@dataclass(frozen=True)
class FusionRecord:
    """Rounding, user constraints and outcomes of one fusion.

    ``forbid`` and ``force``: the edges that the user forbade and forced. ``without``: calls whose kernels did
    not compile. ``tf32``: whether f32 matmuls use tf32. ``verdicts``: for each measured call, by number, why
    it is or is not part of a kernel.
    """

    rounding: str = "fused"
    forbid: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tf32: bool = False
    verdicts: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def read(module: ir.Module) -> FusionRecord:
        """Return the record of a level-4 module, or the defaults if it has none."""
        function = find_function(module)
        if function is None or ATTRIBUTE not in function.attributes:
            return FusionRecord()
        held = ir.DictAttr(function.attributes[ATTRIBUTE])
        texts = {name: ir.ArrayAttr(held[name]) for name in _LISTS}
        lists = {name: tuple(ir.StringAttr(text).value for text in own) for name, own in texts.items()}
        entries = ir.DictAttr(held["verdicts"]) if "verdicts" in held else ()
        verdicts = tuple((entry.name, ir.StringAttr(entry.attr).value) for entry in entries)
        rounding = ir.StringAttr(held["numerics"]).value
        return FusionRecord(rounding, **lists, tf32="tf32" in held, verdicts=verdicts)

    def write(self, module: ir.Module) -> None:
        function = find_function(module)
        assert function is not None
        with module.context:
            texts = {name: map(ir.StringAttr.get, getattr(self, name)) for name in _LISTS}
            held: dict[str, ir.Attribute] = {name: ir.ArrayAttr.get([*own]) for name, own in texts.items()}
            held["numerics"] = ir.StringAttr.get(self.rounding)
            if self.tf32:
                held["tf32"] = ir.UnitAttr.get()
            if self.verdicts:
                whys = {call: ir.StringAttr.get(why) for call, why in self.verdicts}
                held["verdicts"] = ir.DictAttr.get(whys)
            function.attributes[ATTRIBUTE] = ir.DictAttr.get(held)

    def with_verdicts(self, verdicts: Mapping[str, Verdict]) -> FusionRecord:
        """Return a copy with the verdicts of calls, sorted by number."""
        return replace(self, verdicts=tuple((call, verdicts[call].why) for call in sorted(verdicts)))

    def constraints(self) -> FusionConstraints:
        """Return the edges as constraints. Raises BadFusionEdge."""
        return FusionConstraints.of(self.forbid, self.force)

    def with_constraints(self, forbid: Sequence[str], force: Sequence[str]) -> FusionRecord:
        """Return a copy with more edges. A new edge replaces a recorded one that says the opposite."""
        forbidden, forced = _joined(self.forbid, force, forbid), _joined(self.force, forbid, force)
        return replace(self, forbid=forbidden, force=forced)


def _joined(held: Iterable[str], gone: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(edge for edge in held if edge not in gone), *more]))
