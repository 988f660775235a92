"""``dist`` ops of level 3 as Python text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_mlir import ir

from shardc.backends.torch.axes import AxesTable, union
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec


class DistText:
    """Writes the right-hand sides of ``dist`` ops other than loops."""

    def __init__(self, axes: AxesTable, codec: ShardingCodec) -> None:
        self.axes, self._codec = axes, codec
        self._read: dict[ir.Attribute, Axes] = {}

    def write(self, op: ir.Operation, operands: list[str], reuse: bool = False) -> str:
        """The expression for ``op``. ``reuse``: an all-reduce may put its result where its operand is."""
        writer: Callable[..., str] = _WRITERS[op.name]
        text = writer(self, op, *operands)
        return f"{text[:-1]}, reuse=True)" if reuse else text

    def axes_of(self, op: ir.Operation) -> Axes:
        attribute = op.attributes["axes"]
        if attribute not in self._read:
            self._read[attribute] = self._codec.read_axes(attribute)
        return self._read[attribute]

    def spanned(self, op: ir.Operation) -> Axes:
        """The axes that a collective spans."""
        if op.name != "dist.permute":
            return self.axes_of(op)
        return union(tuple(a for name in ("source", "target") for a in self._layout(op, name).used))

    def _all_reduce(self, op: ir.Operation, x: str) -> str:
        return f"rank.all_reduce({x}, axes={self._group(op)}{_reduction(op)})"

    def _all_gather(self, op: ir.Operation, x: str) -> str:
        return f"rank.all_gather({x}, dim={_int(op, 'dim')}, axes={self._group(op)})"

    def _reduce_scatter(self, op: ir.Operation, x: str) -> str:
        return f"rank.reduce_scatter({x}, dim={_int(op, 'dim')}, axes={self._group(op)}{_reduction(op)})"

    def _all_to_all(self, op: ir.Operation, x: str) -> str:
        dims = f"split_dim={_int(op, 'split_dim')}, concat_dim={_int(op, 'concat_dim')}"
        return f"rank.all_to_all({x}, {dims}, axes={self._group(op)})"

    def _broadcast(self, op: ir.Operation, x: str) -> str:
        return f"rank.broadcast({x}, axes={self._group(op)}, root={_int(op, 'root')})"

    def _permute(self, op: ir.Operation, x: str) -> str:
        layouts = [f"{name}={self._dims(self._layout(op, name))}" for name in ("source", "target")]
        return f"rank.permute({x}, {', '.join(layouts)}, axes={self.axes.group(self.spanned(op))})"

    def _slice(self, op: ir.Operation, x: str) -> str:
        dim = _int(op, "dim")
        size = _shape(op.results[0])[dim]
        return f"{x}.narrow({dim}, {_times(self.axes.index(self.axes_of(op)), size)}, {size})"

    def _partial(self, op: ir.Operation, x: str) -> str:
        return f"{x} if {self.axes.index(self.axes_of(op))} == 0 else torch.zeros_like({x})"

    def _offset(self, op: ir.Operation, start: str | None = None) -> str:
        factor = _int(op, "extent") * _int(op, "scale")
        base = _int(op, "base")
        terms = [start] if start else []
        terms.append(_times(self.axes.index(self.axes_of(op)), factor))
        return " + ".join([*terms, str(base)] if base else terms)

    def _group(self, op: ir.Operation) -> str:
        return self.axes.group(self.axes_of(op))

    def _layout(self, op: ir.Operation, name: str) -> Sharding:
        return self._codec.read(op.attributes[name])

    def _dims(self, sharding: Sharding) -> str:
        """The axes of each dim, then those of the partial terms as if they cut one more."""
        lists = [*sharding.dims, tuple(a for _, a in sharding.partial)]
        return f"({', '.join(self.axes.name(a) for a in lists)},)"


def _int(op: ir.Operation, name: str) -> int:
    return op.attributes[name].value


def _reduction(op: ir.Operation) -> str:
    reduction = op.attributes["reduction"].value
    return "" if reduction == "sum" else f', reduction="{reduction}"'


def _shape(value: ir.Value) -> tuple[int, ...]:
    found: Any = read_type(value.type)
    return found.shape


def _times(index: str, factor: int) -> str:
    if factor == 1:
        return index
    return f"({index}) * {factor}" if " " in index else f"{index} * {factor}"


_WRITERS: dict[str, Any] = {
    "dist.all_reduce": DistText._all_reduce,
    "dist.all_gather": DistText._all_gather,
    "dist.reduce_scatter": DistText._reduce_scatter,
    "dist.all_to_all": DistText._all_to_all,
    "dist.broadcast": DistText._broadcast,
    "dist.permute": DistText._permute,
    "dist.slice": DistText._slice,
    "dist.partial": DistText._partial,
    "dist.offset": DistText._offset,
}
