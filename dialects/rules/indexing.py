"""Rules of reads and writes by index: gather, scatter, index_select, advanced indexing and their relatives.

The indexed dim of ``self`` stays whole, with two exceptions: ``gather`` of few elements, and ``scatter`` of
one element in each row. The index's own dims may be split if results have them. Where they are summed into
``self`` (``scatter_add``, ``index_add``, accumulating ``index_put``) they are reduced: each rank adds its
part, and all ranks except the first start from zeros instead of ``self``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import position
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Dims, Local, Rule, numbered, plain, rule_for


def _linear(call: OpCall, *operands: int) -> tuple[frozenset[int], ...]:
    """Return one linear set of these operands; none for integers, whose sums are not kept partial."""
    return (frozenset(operands),) if call.result.dtype.is_floating_point else ()


def _axis(call: OpCall) -> int:
    return call["dim"] % max(len(call["self"].shape), 1)


def _sum_into(factors: Sequence[str], local: Local) -> Sequence[object]:
    """Call the operator where ``factors`` of the added values are split: only the first rank keeps
    ``self``.
    """
    own, *rest = local.args
    cut = [f for f in factors if local.ways(f) > 1]
    if cut:
        start: object = 0
        for f in cut:
            start = local.offset(f, base=start)
        start = local.emit("aten.scalar_tensor", start, torch.int64, None, None, None)
        own = local.emit("aten.where.ScalarOther", local.emit("aten.eq.Scalar", start, 0), own, 0)
    return [local.emit(local.spec.target, own, *rest)]


def _aligned(tensors: Mapping[str, TensorType], axis: int) -> tuple[list[Dims], dict[str, int]]:
    """Return dims and sizes: ``n<d>`` where all tensors agree, else (and at ``axis``) ``<letter><d>`` for
    each.
    """
    sizes: dict[str, int] = {}
    named: dict[str, list[Dim]] = {letter: [] for letter in tensors}
    for d, extents in enumerate(zip(*(t.shape for t in tensors.values()), strict=True)):
        shared = d != axis and len(set(extents)) == 1
        for letter, extent in zip(tensors, extents, strict=True):
            name = f"n{d}" if shared else f"{letter}{d}"
            sizes[name] = extent
            named[letter].append((name,))
    return [tuple(dims) for dims in named.values()], sizes


def _own(sizes: Iterable[str]) -> frozenset[str]:
    """Return the factors that not all tensors of a call share."""
    return frozenset(f for f in sizes if not f.startswith("n"))


def _local_index(local: Local, axis: int) -> tuple[object, object]:
    """Return each index relative to this rank's part of ``self``, and a mask of indices inside it."""
    index, f = local.args[position(local.spec.target, "index")], f"s{axis}"
    shifted = local.emit("aten.sub.Scalar", index, local.offset(f), 1)
    rows = local.emit("aten.clamp", shifted, 0, local.size(f) - 1)
    return rows, local.emit("aten.eq.Tensor", rows, shifted)


@rule_for("aten.gather")
def gather(call: OpCall) -> Rule | None:
    """Rule of ``(self [n..., s], index [n..., i]) -> [n..., i]``.

    If few of many elements are picked, ``s`` may be split: each rank picks from its part and returns zeros
    for other indices. The sum of these sends twice the result's bytes, instead of the bytes of ``self`` that
    an all-gather would send.
    """
    tensor, index = call["self"], call["index"]
    if len(tensor.shape) != len(index.shape):
        return None
    axis = _axis(call)
    (source, picked), sizes = _aligned({"s": tensor, "i": index}, axis)
    whole = _own(sizes) - {f"i{axis}"}
    if 2 * index.numel > tensor.numel or tensor.dtype == torch.bool:
        return Rule((source, picked), (picked,), sizes, replicate=whole, linear=_linear(call, 0))
    return Rule(
        (source, picked),
        (picked,),
        sizes,
        reduce={f"s{axis}": "sum"},
        replicate=whole - {f"s{axis}"},
        linear=_linear(call, 0),
        lower=partial(_pick_own, axis),
        neutral={f"s{axis}": (None, None)},
    )


def _pick_own(axis: int, local: Local) -> Sequence[object]:
    if local.ways(f"s{axis}") == 1:
        return [local.emit("aten.gather", *local.args)]
    rows, inside = _local_index(local, axis)
    picked = local.emit("aten.gather", local.args[0], axis, rows)
    return [local.emit("aten.masked_fill.Scalar", picked, local.emit("aten.logical_not", inside), 0)]


@rule_for("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter(call: OpCall) -> Rule | None:
    """Rule of ``(self [n..., s], index [n..., i], src [n..., u]) -> [n..., s]``."""
    letters = dict(zip("siu", call.tensors, strict=False))
    if len({len(t.shape) for t in call.tensors}) != 1:
        return None
    axis = _axis(call)
    dims, sizes = _aligned(letters, axis)
    whole, lower = _own(sizes), None
    if _writes_one(call, axis):
        whole, lower = whole - {f"s{axis}"}, partial(_write_own, axis)
    return Rule(tuple(dims), (dims[0],), sizes, replicate=whole, linear=_scatter_linear(call), lower=lower)


def _writes_one(call: OpCall, axis: int) -> bool:
    """Return whether at most one element of each row of ``self`` is set, so that rows may be split.

    One-hot targets and the gradient of a maximum are such calls.
    """
    if call.target not in ("aten.scatter.value", "aten.scatter.src") or not call["self"].shape:
        return False
    if call.target == "aten.scatter.src":
        exact = call["src"].shape == call["index"].shape
    else:
        exact = isinstance(call["value"], int) or call["self"].dtype.is_floating_point
    return exact and call["index"].shape[axis] == 1 < call["self"].shape[axis]


def _write_own(axis: int, local: Local) -> Sequence[object]:
    """Call the operator on a rank's part. Without the element, a rank rewrites one of its own unchanged."""
    own, _, _, value = local.args
    if local.ways(f"s{axis}") == 1:
        return [local.emit(local.spec.target, *local.args)]
    rows, inside = _local_index(local, axis)
    written = local.emit("aten.gather", own, axis, rows)
    if local.spec.target == "aten.scatter.src":
        written = local.emit("aten.where.self", inside, value, written)
    else:
        written = local.emit("aten.masked_fill.Scalar", written, inside, value)
    return [local.emit("aten.scatter.src", own, axis, rows, written)]


def _scatter_linear(call: OpCall) -> tuple[frozenset[int], ...]:
    if call.target == "aten.scatter.src":
        return _linear(call, 0, 2)
    return _linear(call, 0) if call.target == "aten.scatter.value" and call["value"] == 0 else ()


@rule_for("aten.scatter_add")
def scatter_add(call: OpCall) -> Rule | None:
    """Rule of ``(self [n..., s], index [n..., i], src [n..., i]) -> [n..., s]``, a sum over ``i``."""
    return _combining(call, "sum", _linear(call, 0, 2)) if call["self"].shape else None


_KINDS = {"sum": "sum", "amax": "max", "amin": "min"}
_UNSEEN = {"sum": 0.0, "max": -inf, "min": inf}
"""Neutral elements: scattering them changes nothing."""


@rule_for("aten.scatter_reduce.two")
def scatter_reduce(call: OpCall) -> Rule | None:
    """Rule as of ``scatter_add``, or an extremum.

    Without ``include_self`` ranks cannot tell which elements were written, so nothing is reduced.
    """
    linear = _linear(call, 0, 2) if call["reduce"] in ("sum", "mean") else ()
    return _combining(call, _KINDS.get(call["reduce"]) if call["include_self"] else None, linear)


def _combining(call: OpCall, kind: str | None, linear: tuple[frozenset[int], ...]) -> Rule | None:
    """Return the rule of a scatter that reduces; ``kind`` combines ranks' results, None if they do not."""
    tensor, index, source = call.tensors
    if not len(tensor.shape) == len(index.shape) == len(source.shape):
        return None
    axis = _axis(call)
    (into, where, added), sizes = _aligned({"s": tensor, "i": index, "u": source}, axis)
    whole = _own(sizes)
    if kind is None or not tensor.shape or source.shape[axis] != index.shape[axis]:
        return Rule((into, where, added), (into,), sizes, replicate=whole, linear=linear)
    del sizes[f"u{axis}"]
    summed = f"i{axis}"
    return Rule(
        (into, where, (*added[:axis], (summed,), *added[axis + 1 :])),
        (into,),
        sizes,
        reduce={summed: kind},
        replicate=whole - {summed, f"u{axis}"},
        linear=linear,
        lower=partial(_sum_into, (summed,)) if kind == "sum" else None,
        neutral={summed: (None, 0.0, _UNSEEN[kind])},
    )


@rule_for("aten.index_select")
def index_select(call: OpCall) -> Rule | None:
    """Rule of ``(self [n..., s], index [i]) -> [n..., i]``."""
    lines = _lines(call)
    if lines is None:
        return None
    into, picked, sizes = lines
    return Rule((into, (("i",),)), (picked,), sizes, replicate=frozenset("s"), linear=_linear(call, 0))


@rule_for("aten.index_add")
def index_add(call: OpCall) -> Rule | None:
    """Rule of ``(self [n..., s], index [i], source [n..., i]) -> [n..., s]``, a sum over ``i``."""
    lines = _lines(call)
    if lines is None:
        return None
    into, added, sizes = lines
    return Rule(
        (into, (("i",),), added),
        (into,),
        sizes,
        reduce={"i": "sum"},
        replicate=frozenset("s"),
        linear=_linear(call, 0, 2),
        lower=partial(_sum_into, ("i",)),
    )


@rule_for("aten.index_copy", "aten.index_fill.int_Scalar")
def index_write(call: OpCall) -> Rule | None:
    """Rule of ``(self [n..., s], index [i], source [n..., i]) -> [n..., s]``; ``index_fill`` has no
    source.
    """
    lines = _lines(call)
    if lines is None:
        return None
    into, written, sizes = lines
    copies = call.target == "aten.index_copy"
    linear = _linear(call, 0, 2) if copies else _linear(call, 0) if call["value"] == 0 else ()
    operands = (into, (("i",),), written) if copies else (into, (("i",),))
    return Rule(operands, (into,), sizes, replicate=frozenset("si"), linear=linear)


def _lines(call: OpCall) -> tuple[Dims, Dims, dict[str, int]] | None:
    """Return the dims of ``self``, these dims with the indexed one replaced by the index's, and sizes.

    None for scalars.
    """
    shape, index = call["self"].shape, call["index"].shape
    if not shape or len(index) != 1:
        return None
    axis = _axis(call)
    sizes = {"s" if d == axis else f"n{d}": size for d, size in enumerate(shape)}
    into = plain(sizes)
    return into, (*into[:axis], ("i",), *into[axis + 1 :]), {**sizes, "i": index[0]}


@dataclass(frozen=True)
class _Advanced:
    """Factors of ``self[indices]``: ``s<d>`` are indexed dims of self, ``n<d>`` others, ``x<j>`` the
    indices'.
    """

    own: Dims
    indices: tuple[Dims, ...]
    picked: Dims
    sizes: dict[str, int]

    @staticmethod
    def of(call: OpCall) -> _Advanced | None:
        """Return the factors, or None if an index is a mask, since its number of elements depends on
        values.
        """
        shape = call["self"].shape
        given = {d: t for d, t in enumerate(call["indices"]) if t is not None}
        if not given or any(t.dtype in (torch.bool, torch.uint8) for t in given.values()):
            return None
        common = torch.broadcast_shapes(*(t.shape for t in given.values()))
        names = [f"s{d}" if d in given else f"n{d}" for d in range(len(shape))]
        index = plain(places := numbered("x", common))
        sizes = {**dict(zip(names, shape, strict=True)), **places}
        others = plain(f for f in names if f.startswith("n"))
        first, last = min(given), max(given)
        # As in NumPy, picked dims replace the indices if these are adjacent, else they come first.
        place = first if last - first + 1 == len(given) else 0
        picked = (*others[:place], *index, *others[place:])
        indices = tuple(_broadcast(t.shape, index, sizes) for t in given.values())
        return _Advanced(plain(names), indices, picked, sizes)

    @property
    def indexed(self) -> frozenset[str]:
        return frozenset(f for f in self.sizes if f.startswith("s"))

    @property
    def index(self) -> tuple[str, ...]:
        return tuple(f for f in self.sizes if f.startswith("x"))


def _broadcast(shape: tuple[int, ...], dims: Dims, sizes: Mapping[str, int]) -> Dims:
    """Return the dims of a tensor that is broadcast to ``dims``: no factor where its size differs."""
    last = dims[len(dims) - len(shape) :]
    return tuple(dim if sizes[dim[0]] == size else () for dim, size in zip(last, shape, strict=True))


@rule_for("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(call: OpCall) -> Rule | None:
    """Rule of ``(self, indices...) -> self[indices]``."""
    found = _Advanced.of(call)
    if found is None:
        return None
    operands = (found.own, *found.indices)
    return Rule(operands, (found.picked,), found.sizes, replicate=found.indexed, linear=_linear(call, 0))


@rule_for("aten.index_put", "aten._unsafe_index_put")
def index_put(call: OpCall) -> Rule | None:
    """Rule of ``(self, indices..., values) -> self``: ``values`` replace, or are added to,
    ``self[indices]``.
    """
    found = _Advanced.of(call)
    if found is None:
        return None
    values = _broadcast(call["values"].shape, found.picked, found.sizes)
    sums = bool(call["accumulate"])
    # Factors over which a value is broadcast: no rank could replace its value by zero.
    shared = [f for f in found.index if (f,) not in values]
    return Rule(
        (found.own, *found.indices, values),
        (found.own,),
        found.sizes,
        reduce=dict.fromkeys(found.index, "sum") if sums else {},
        replicate=found.indexed if sums else found.indexed | set(found.index),
        linear=_linear(call, 0, len(found.indices) + 1),
        lower=partial(_sum_into, found.index) if sums else None,
        neutral=dict.fromkeys(shared),
    )
