"""Rules of ``shardc::attention`` and its backward.

Query heads are two factors: ``h`` key/value heads and the ``g`` query heads that share each of them
(grouped-query attention; g is 1 where every query head has its own). So cutting ``h`` cuts keys and values
too, and cutting ``g`` leaves them whole. Rows ``q`` may be cut; columns ``k`` may not, as a softmax runs over
them.
"""

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dims, Local, Rule, rule_for

Q: Dims = (("b",), ("h", "g"), ("q",), ("d",))
K: Dims = (("b",), ("h",), ("k",), ("d",))
V: Dims = (("b",), ("h",), ("k",), ("e",))
OUT: Dims = (("b",), ("h", "g"), ("q",), ("e",))
LSE: Dims = OUT[:3]
SCORES: Dims = (("b",), ("h", "g"), ("q",), ("k",))
# lse, dq and dk lack the dim ``e`` and none is a plain sum over it, so it stays whole beside ``d`` and ``k``.
WHOLE = frozenset("kde")


def _sizes(call: OpCall) -> dict[str, int]:
    batch, heads, rows, depth = call["q"].shape
    _, kv_heads, columns, width = call["v"].shape
    groups = heads // kv_heads
    return {"b": batch, "h": kv_heads, "g": groups, "q": rows, "d": depth, "k": columns, "e": width}


def _mask(mask: TensorType | None) -> tuple[Dims, ...]:
    """The mask's dims as an operand, if there is one: those of the scores where it is not broadcast."""
    if mask is None:
        return ()
    return (tuple(dim if size > 1 else () for dim, size in zip(SCORES, mask.shape, strict=True)),)


def _shifted(local: Local) -> Sequence[object]:
    """The local rows of a causal mask start where this rank's rows do."""
    *args, q_offset = local.args
    return local.emit(local.spec.target, *args, local.offset("q", base=q_offset))


@rule_for("shardc.attention")
def attention(call: OpCall) -> Rule:
    """``(q, k, v, mask) -> (out, lse)``."""
    operands = (Q, K, V, *_mask(call["mask"]))
    lower = _shifted if call["causal"] else None
    return Rule(operands, (OUT, LSE), _sizes(call), replicate=WHOLE, lower=lower)


@rule_for("shardc.attention_backward")
def attention_backward(call: OpCall) -> Rule:
    """``(grad_out, q, k, v, mask, out, lse) -> (dq, dk, dv)``; dk and dv are sums over ``q`` and ``g``."""
    return Rule(
        (OUT, Q, K, V, *_mask(call["mask"]), OUT, LSE),
        (Q, K, V),
        _sizes(call),
        reduce={"g": "sum", "q": "sum"},
        replicate=WHOLE,
        linear=(frozenset({0}),),
        lower=_shifted if call["causal"] else None,
    )
