"""``dist`` ops of level 3 as Python text."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.torch.axes import AxesTable, union
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.collectives.exchange import read_sources
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec


class DistText:
    """Writer of the right-hand sides of ``dist`` ops other than loops."""

    def __init__(self, axes: AxesTable, codec: ShardingCodec) -> None:
        self.axes, self._codec = axes, codec
        self._read: dict[ir.Attribute, Axes] = {}

    def write(self, op: ir.Operation, operands: list[str], reuse: bool = False) -> str:
        """Return the expression for ``op``. ``reuse``: an all-reduce may overwrite its operand."""
        name = op.name.removeprefix("dist.")
        if name not in _ARGUMENTS:
            return {"slice": self._slice, "partial": self._partial, "offset": self._offset}[name](
                op, *operands
            )
        parts = [f"{key}={text}" for key in _ARGUMENTS[name] if (text := self._argument(op, key))]
        return f"rank.{name}({', '.join([*operands, *parts])}{', reuse=True' if reuse else ''})"

    def axes_of(self, op: ir.Operation) -> Axes:
        attribute = op.attributes["axes"]
        if attribute not in self._read:
            self._read[attribute] = self._codec.read_axes(attribute)
        return self._read[attribute]

    def spanned(self, op: ir.Operation) -> Axes:
        """Return the axes that a collective spans."""
        if op.name != "dist.permute":
            return self.axes_of(op)
        return union(tuple(a for name in ("source", "target") for a in self._layout(op, name).used))

    def _argument(self, op: ir.Operation, key: str) -> str:
        """Return one argument of a collective; empty for a default."""
        if key == "axes":
            return self.axes.group(self.spanned(op))
        if key in ("source", "target"):
            return self._dims(self._layout(op, key))
        if key == "sources":
            return str(read_sources(op))
        value = op.attributes[key].value
        return str(value) if key != "reduction" else "" if value == "sum" else f'"{value}"'

    def _slice(self, op: ir.Operation, x: str) -> str:
        dim = op.attributes["dim"].value
        type_ = read_type(op.results[0].type)
        assert type_ is not None
        size = type_.shape[dim]
        return f"{x}.narrow({dim}, {_times(self.axes.index(self.axes_of(op)), size)}, {size})"

    def _partial(self, op: ir.Operation, x: str) -> str:
        return f"{x} if {self.axes.index(self.axes_of(op))} == 0 else torch.zeros_like({x})"

    def _offset(self, op: ir.Operation, start: str | None = None) -> str:
        extent, scale, base = (op.attributes[name].value for name in ("extent", "scale", "base"))
        terms = [start] if start else []
        terms.append(_times(self.axes.index(self.axes_of(op)), extent * scale))
        return " + ".join([*terms, str(base)] if base else terms)

    def _layout(self, op: ir.Operation, name: str) -> Sharding:
        return self._codec.read(op.attributes[name])

    def _dims(self, sharding: Sharding) -> str:
        """Return the axes of each dim, and those of the partial terms as if they sharded one more dim."""
        lists = [*sharding.dims, tuple(a for _, a in sharding.partial)]
        return f"({', '.join(self.axes.name(a) for a in lists)},)"


def _times(index: str, factor: int) -> str:
    if factor == 1:
        return index
    return f"({index}) * {factor}" if " " in index else f"{index} * {factor}"


_ARGUMENTS = {
    "all_reduce": ("axes", "reduction"),
    "all_gather": ("dim", "axes"),
    "reduce_scatter": ("dim", "axes", "reduction"),
    "all_to_all": ("split_dim", "concat_dim", "axes"),
    "broadcast": ("axes", "root"),
    "permute": ("source", "target", "axes"),
    "exchange": ("sources", "axes"),
}
"""Collective of a rank -> its arguments, in order."""
