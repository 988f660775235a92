"""Rules of experts: products of rows with their experts' matrices, and dispatch of rows to experts.

Rows [(n m)] are in ``n`` blocks, each for a block of the experts [(n e)]. Splitting ``n`` is expert
parallelism in which rows move to the devices of their experts. Splitting ``e`` leaves rows in place: a
device's result has zeros for rows of other devices' experts, and is a term of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.rule import Dim, Local, Rule, emit_with, rule_for

JOINT = (frozenset({0}), frozenset({1}))
"""Linear sets of products: either operand alone."""


def _blocks(call: OpCall, *factors: str) -> tuple[Dim, ...]:
    """Return a dim for each factor, below the factor ``n`` if the call has several blocks."""
    return tuple(("n", f) if call["ways"] > 1 else (f,) for f in factors)


def _sizes(call: OpCall, experts: int, columns: int) -> dict[str, int]:
    rows, terms = call["x"].shape
    ways = call["ways"]
    blocks = {"n": ways} if ways > 1 else {}
    return {**blocks, "m": rows // ways, "e": experts // ways, "k": terms, "j": columns}


def _own_experts(local: Local, **changed: object) -> Sequence[object]:
    """Call the operator on a rank's experts: ids are shifted, so that other ranks' experts are out of
    range.
    """
    if local.ways("e") > 1:
        ids = local.args[2]
        changed["ids"] = local.emit("aten.sub.Scalar", ids, local.offset("e"), 1)
    if local.spec["ways"] > 1:
        changed["ways"] = local.size("n")
    return [emit_with(local, **changed)]


@rule_for("shardc.expert_ids")
def expert_ids(call: OpCall) -> Rule:
    """Rule of ``ids -> ids``; padding must hold the number of an expert, too."""
    return Rule(((("m",),),), ((("m",),),), {"m": call["ids"].numel}, neutral={"m": (0.0,)})


@rule_for("shardc.expert_mm")
def expert_mm(call: OpCall) -> Rule:
    """Rule of ``(x, w, ids) -> rows``; rows of other ranks' experts are zeros."""
    experts, _, columns = call["w"].shape
    rows, matrices = _blocks(call, "m", "e")
    return Rule(
        ((rows, ("k",)), (matrices, ("k",), ("j",)), (rows,)),
        ((rows, ("j",)),),
        _sizes(call, experts, columns),
        reduce={"e": "sum", "k": "sum"},
        linear=JOINT,
        lower=_own_experts,
    )


def _own_sums(local: Local) -> Sequence[object]:
    blocks = local.size("n") if local.spec["ways"] > 1 else 1
    return _own_experts(local, experts=blocks * local.size("e"))


@rule_for("shardc.expert_outer")
def expert_outer(call: OpCall) -> Rule:
    """Rule of ``(x, y, ids) -> matrices``, which are sums over rows."""
    rows, matrices = _blocks(call, "m", "e")
    return Rule(
        ((rows, ("k",)), (rows, ("j",)), (rows,)),
        ((matrices, ("k",), ("j",)),),
        _sizes(call, call["experts"], call["y"].shape[1]),
        reduce={"m": "sum"},
        linear=JOINT,
        lower=_own_sums,
    )


COPY: tuple[Dim, ...] = (("c",), ("k",), ("j",))
MATRICES: tuple[Dim, ...] = (("e",), ("k",), ("j",))


@rule_for("shardc.copied_ids")
def copied_ids(call: OpCall) -> Rule:
    """Rule of ``ids -> ids``."""
    return Rule(((("m",),),), ((("m",),),), {"m": call["ids"].numel})


def _copy_sizes(call: OpCall, experts: int) -> dict[str, int]:
    return dict(zip("ckje", (len(call["experts"]), *call.result.shape[1:], experts), strict=True))


def _pick_own(local: Local) -> Sequence[object]:
    return [emit_with(local, first=local.offset("e", base=local.spec["first"]))]


@rule_for("shardc.pick_experts")
def pick_experts(call: OpCall) -> Rule:
    """Rule of ``w [e, k, j] -> copies [c, k, j]``; copies of other ranks' experts are zeros."""
    return Rule(
        (MATRICES,),
        (COPY,),
        _copy_sizes(call, call["w"].shape[0]),
        reduce={"e": "sum"},
        replicate=frozenset("c"),
        linear=(frozenset({0}),),
        lower=_pick_own,
        neutral={"e": (None,)},
    )


def _place_own(local: Local) -> Sequence[object]:
    first = local.offset("e", base=local.spec["first"])
    return [emit_with(local, first=first, count=local.size("e"))]


@rule_for("shardc.place_experts")
def place_experts(call: OpCall) -> Rule:
    """Rule of ``copies [c, k, j] -> w [e, k, j]``, with zeros for the other experts."""
    return Rule(
        (COPY,),
        (MATRICES,),
        _copy_sizes(call, call["count"]),
        replicate=frozenset("c"),
        linear=(frozenset({0}),),
        lower=_place_own,
    )


ROWS: Dim = ("b", "r")
BUFFER: tuple[Dim, ...] = (("n",), ("b",), ("c",))
WHOLE = frozenset("nrc")
"""Factors that stay whole: the destination of a row depends on all rows of its block."""


def _dispatch_sizes(call: OpCall, ways: int, blocks: int, room: int) -> dict[str, int]:
    return {"b": blocks, "r": call["ids"].numel // blocks, "n": ways, "c": room}


def _own_blocks(local: Local) -> Sequence[object]:
    return [emit_with(local, blocks=local.size("b"))]


@rule_for("shardc.dispatch")
def dispatch(call: OpCall) -> Rule:
    """Rule of ``(x [(b r), h], ids) -> [n, b, c, h]``."""
    sizes = _dispatch_sizes(call, call["ways"], call["blocks"], call["room"]) | {"h": call["x"].shape[1]}
    return Rule(
        ((ROWS, ("h",)), (ROWS,)),
        ((*BUFFER, ("h",)),),
        sizes,
        replicate=WHOLE,
        linear=(frozenset({0}),),
        lower=_own_blocks,
        neutral={"b": None},
    )


@rule_for("shardc.dispatch_ids")
def dispatch_ids(call: OpCall) -> Rule:
    """Rule of ``ids [(b r)] -> [n, b, c]``."""
    sizes = _dispatch_sizes(call, call["ways"], call["blocks"], call["room"])
    return Rule(((ROWS,),), (BUFFER,), sizes, replicate=WHOLE, lower=_own_blocks, neutral={"b": None})


@rule_for("shardc.collect")
def collect(call: OpCall) -> Rule:
    """Rule of ``(y [n, b, c, h], ids) -> [(b r), h]``."""
    ways, blocks, room, width = call["y"].shape
    sizes = _dispatch_sizes(call, ways, blocks, room) | {"h": width}
    return Rule(
        ((*BUFFER, ("h",)), (ROWS,)),
        ((ROWS, ("h",)),),
        sizes,
        replicate=WHOLE,
        linear=(frozenset({0}),),
        neutral={"b": None},
    )


@rule_for("shardc.beyond_room")
def beyond_room(call: OpCall) -> Rule:
    """Rule of ``ids [(b r)] -> [b]``."""
    sizes = {"b": call["blocks"], "r": call["ids"].numel // call["blocks"]}
    replicate = frozenset("r")
    return Rule(((ROWS,),), ((("b",),),), sizes, replicate=replicate, lower=_own_blocks, neutral={"b": None})
