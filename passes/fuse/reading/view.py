"""Reader of ATen's views as relations between the dims of the view and of its source."""

from __future__ import annotations

from shardc.dialects.aten.call import OpCall
from shardc.dialects.kern.size import AnySize, Size, SizeNotKnown
from shardc.dialects.rules.rule import find_rule
from shardc.passes.fuse.reading.graph import Cut, Value, View

RESHAPES = frozenset(
    f"aten.{name}"
    for name in ("_reshape_alias", "_unsafe_view", "flatten.using_ints", "reshape", "unflatten.int", "view")
)
CUTS = frozenset(("aten.slice.Tensor", "aten.select.int"))
# Views whose sharding rule relates their dims: all elements are kept, and none moves within a dim.
WHOLE = RESHAPES | {
    f"aten.{name}"
    for names in ("alias detach expand permute t transpose.int", "squeeze squeeze.dim squeeze.dims unsqueeze")
    for name in names.split()
}
VIEWS = WHOLE | CUTS


def view_of(call: OpCall, source: Value) -> View | None:
    """Return the view that a call of VIEWS makes; None if an index map cannot express it."""
    (type_,) = call.results
    assert type_ is not None
    shape, made = source.type.shape, type_.shape
    symbolic = any(isinstance(n, Size) for n in (*shape, *made))
    try:
        if call.target in CUTS:
            is_static = call.target == "aten.slice.Tensor" and not symbolic
            cut = _slice(call, shape) if is_static else _cut(call, shape, made)
            return None if cut is None else View(source, cut=cut)
        if symbolic and call.target in RESHAPES:  # their rules need integer sizes
            return _reshaped(source, made)
        rule = find_rule(call)
    except SizeNotKnown:
        return None
    if rule is None or rule.replicate:
        return None
    return View(source, rule.operands[0], rule.results[0], tuple(rule.sizes.items()))


def _cut(call: OpCall, shape: tuple[AnySize, ...], made: tuple[AnySize, ...]) -> Cut:
    """Return the slice that a selection, or a slice of symbolic sizes, takes."""
    dim, drop = call["dim"] % len(shape), call.target == "aten.select.int"
    first, step = (call["index"], 1) if drop else (call["start"] or 0, call["step"])
    first = first % shape[dim] if first < 0 else first
    return Cut(dim, 1 if drop else made[dim], first, step, drop)


def _slice(call: OpCall, shape: tuple[int, ...]) -> Cut | None:
    dim = call["dim"] % len(shape)
    start, end, step = (call[name] for name in ("start", "end", "step"))
    if any(not isinstance(x, int | None) for x in (start, end, step)):
        return None
    kept = range(shape[dim])[start:end:step]
    return Cut(dim, len(kept), kept.start, kept.step, False)


def _reshaped(source: Value, shape: tuple[AnySize, ...]) -> View | None:
    try:
        return View.reshaped(source, shape)
    except (ValueError, SizeNotKnown):
        return None
