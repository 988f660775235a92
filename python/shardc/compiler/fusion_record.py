"""How the program of a step was fused, kept with its level 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.region import Verdict
from shardc.passes.manager.program import find_function

ATTRIBUTE = "kern.fusion"


@dataclass(frozen=True)
class FusionRecord:
    """``rounding``, and the edges that a user forbade and forced; ``without``: the calls whose kernels did
    not compile; ``tf32``: whether products of f32 are of tf32; ``verdicts``: by the number of a call, why it
    is or is not in a kernel, where that was measured.
    """

    rounding: str = "fused"
    forbid: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tf32: bool = False
    verdicts: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def read(module: ir.Module) -> FusionRecord:
        """That of a level-4 module; the defaults where it has none."""
        function = find_function(module)
        if function is None or ATTRIBUTE not in function.attributes:
            return FusionRecord()
        held = ir.DictAttr(function.attributes[ATTRIBUTE])
        lists = {
            name: tuple(ir.StringAttr(text).value for text in held[name])
            for name in ("forbid", "force", "without")
        }
        verdicts = (
            tuple((entry.name, ir.StringAttr(entry.attr).value) for entry in ir.DictAttr(held["verdicts"]))
            if "verdicts" in held
            else ()
        )
        return FusionRecord(
            ir.StringAttr(held["numerics"]).value, **lists, tf32="tf32" in held, verdicts=verdicts
        )

    def write(self, module: ir.Module) -> None:
        function = find_function(module)
        assert function is not None
        with module.context:
            lists = {name: _texts(getattr(self, name)) for name in ("forbid", "force", "without")}
            more: dict[str, ir.Attribute] = {"tf32": ir.UnitAttr.get()} if self.tf32 else {}
            if self.verdicts:
                more["verdicts"] = ir.DictAttr.get(
                    {call: ir.StringAttr.get(why) for call, why in self.verdicts}
                )
            held = {"numerics": ir.StringAttr.get(self.rounding), **lists, **more}
            function.attributes[ATTRIBUTE] = ir.DictAttr.get(held)

    def with_verdicts(self, verdicts: Mapping[str, Verdict]) -> FusionRecord:
        """With those of calls, by number."""
        return replace(
            self, verdicts=tuple((call, verdict.why) for call, verdict in sorted(verdicts.items()))
        )

    def constraints(self) -> FusionConstraints:
        """Raises BadFusionEdge."""
        return FusionConstraints.of(self.forbid, self.force)

    def with_constraints(self, forbid: Sequence[str], force: Sequence[str]) -> FusionRecord:
        """With more edges, which take the place of these that say the opposite."""
        return replace(
            self, forbid=_joined(self.forbid, force, forbid), force=_joined(self.force, forbid, force)
        )


def _joined(held: Iterable[str], gone: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(edge for edge in held if edge not in gone), *more]))


def _texts(texts: Iterable[str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])
