"""Rules of scans, sorts and searches: all dims may be split, except the one that is scanned or sorted."""

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dims, Rule, numbered, plain, rule_for


@rule_for("aten.cumprod", "aten.cummax", "aten.cummin", "aten.logcumsumexp")
@rule_for("aten.sort", "aten.sort.stable", "aten.argsort", "aten.argsort.stable", "aten.topk")
def along_dim(call: OpCall, linear: tuple[frozenset[int], ...] = ()) -> Rule:
    """Rule of ``[n..., d] -> [n..., d]``; if the result is shorter (``topk``), its dim is a factor ``k``."""
    shape = call["self"].shape
    place = call["dim"] % max(len(shape), 1)
    sizes = {"d" if i == place else f"n{i}": size for i, size in enumerate(shape)}
    operand = plain(sizes)
    made = operand
    if shape and call.result.shape[place] != shape[place]:
        sizes["k"] = call.result.shape[place]
        made = tuple(("k",) if dim == ("d",) else dim for dim in operand)
    whole = frozenset(sizes) & {"d", "k"}
    return Rule((operand,), tuple(made for _ in call.results), sizes, replicate=whole, linear=linear)


@rule_for("aten.cumsum")
def cumsum(call: OpCall) -> Rule:
    """Rule of ``cumsum``, which is linear for floats."""
    floats = all(t.dtype.is_floating_point for t in (*call.tensors, call.result))
    return along_dim(call, (frozenset({0}),) if floats else ())


@rule_for("aten.searchsorted.Tensor")
def searchsorted(call: OpCall) -> Rule:
    """Rule of ``(sorted_sequence [n..., s], self [n..., m]) -> [n..., m]``, or ``([s], [m...]) -> [m...]``.

    A position in a sorted row is the number of elements before it, so it is a sum over the row's parts. With
    a sorter, whose indices refer to the whole row, ``s`` stays whole.
    """
    table, wanted, sizes = _search(call["sorted_sequence"], call["self"])
    if call["sorter"] is not None:
        return Rule((table, wanted, table), (wanted,), sizes, replicate=frozenset({"s"}))
    return Rule((table, wanted), (wanted,), sizes, reduce={"s": "sum"}, neutral={"s": None})


@rule_for("aten.bucketize.Tensor")
def bucketize(call: OpCall) -> Rule:
    """Rule of ``(self [m...], boundaries [s]) -> [m...]``."""
    table, wanted, sizes = _search(call["boundaries"], call["self"])
    return Rule((wanted, table), (wanted,), sizes, reduce={"s": "sum"}, neutral={"s": None})


def _search(table: TensorType, wanted: TensorType) -> tuple[Dims, Dims, dict[str, int]]:
    """Return the dims of the table and of the values, and sizes; rows of a table share the values'
    factors.
    """
    sizes = numbered("m", wanted.shape)
    values = plain(sizes)
    rows = () if len(table.shape) == 1 else values[:-1]
    return (*rows, ("s",)), values, {**sizes, "s": table.shape[-1]}
