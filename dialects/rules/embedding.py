"""Rules of embedding lookups: the vocabulary ``v`` may be split, as in Megatron's parallel embedding.

A rank with rows [offset, offset + size) of the table looks up the indices of its rows and returns zeros for
the others, so that the ranks' results add up to the lookup (Shoeybi et al., "Megatron-LM", 2019, section 3).
"""

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.rule import Local, Rule, numbered, plain, rule_for


def _local_rows(local: Local, indices: object) -> tuple[object, object]:
    """Return, for each index, the row in this rank's part of the table, and a mask of indices outside it."""
    shifted = local.emit("aten.sub.Scalar", indices, local.offset("v"), 1)
    rows = local.emit("aten.clamp", shifted, 0, local.size("v") - 1)
    return rows, local.emit("aten.ne.Tensor", rows, shifted)


def _lookup(local: Local) -> Sequence[object]:
    weight, indices, *rest = local.args
    if local.ways("v") == 1:
        return [local.emit("aten.embedding", *local.args)]
    rows, outside = _local_rows(local, indices)
    found = local.emit("aten.embedding", weight, rows, *rest)
    return [local.emit("aten.masked_fill.Scalar", found, local.emit("aten.unsqueeze", outside, -1), 0.0)]


@rule_for("aten.embedding")
def embedding(call: OpCall) -> Rule:
    """Rule of ``(weight [v, e], indices [n...]) -> [n..., e]``."""
    rows, width = call["weight"].shape
    index = numbered("n", call["indices"].shape)
    dims = plain(index)
    return Rule(
        ((("v",), ("e",)), dims),
        ((*dims, ("e",)),),
        {**index, "v": rows, "e": width},
        reduce={"v": "sum"},
        linear=(frozenset({0}),),
        lower=_lookup,
        neutral={"v": (None, None)},
    )


def _scatter_rows(local: Local) -> Sequence[object]:
    """Add gradients of other ranks' rows to an extra row, which is the padding row and is then dropped."""
    grad, indices, _, padding_idx, by_frequency = local.args
    size = local.size("v")
    if local.ways("v") == 1:
        return [local.emit("aten.embedding_dense_backward", grad, indices, size, padding_idx, by_frequency)]
    rows, dropped = _local_rows(local, indices)
    if padding_idx >= 0:
        dropped = local.emit("aten.logical_or", dropped, local.emit("aten.eq.Scalar", indices, padding_idx))
    rows = local.emit("aten.masked_fill.Scalar", rows, dropped, size)
    table = local.emit("aten.embedding_dense_backward", grad, rows, size + 1, size, by_frequency)
    return [local.emit("aten.slice.Tensor", table, 0, 0, size, 1)]


@rule_for("aten.embedding_dense_backward")
def embedding_dense_backward(call: OpCall) -> Rule:
    """Rule of ``(grad [n..., e], indices [n...]) -> [v, e]``; frequencies are counted over all indices."""
    index = numbered("n", call["indices"].shape)
    dims = plain(index)
    by_frequency = call["scale_grad_by_freq"]
    return Rule(
        ((*dims, ("e",)), dims),
        ((("v",), ("e",)),),
        {**index, "v": call["num_weights"], "e": call["grad_output"].shape[-1]},
        reduce={} if by_frequency else dict.fromkeys(index, "sum"),
        replicate=frozenset(index) if by_frequency else frozenset(),
        linear=(frozenset({0}),),
        lower=_scatter_rows,
    )
