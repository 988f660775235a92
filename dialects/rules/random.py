"""Rules of random ops: every dim may be split, because a number depends only on its global index."""

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import position
from shardc.dialects.rules.rule import Local, Rule, emit_with, numbered, plain, rule_for


@rule_for("shardc.uniform")
def uniform(call: OpCall) -> Rule:
    """Rule of ``(seed []) -> [n...]``."""
    sizes = numbered("n", call["size"])
    return Rule(((),), (plain(sizes),), sizes, lower=_block)


@rule_for("shardc.poisson", "shardc.binomial", "shardc.standard_gamma")
def sample(call: OpCall) -> Rule:
    """Rule of ``(parameters [n...], seed []) -> [n...]``, element by element."""
    sizes = numbered("n", call.result.shape)
    dims = plain(sizes)
    return Rule((*[dims] * (len(call.tensors) - 1), ()), (dims,), sizes, lower=_sample_block)


def _block(local: Local) -> Sequence[object]:
    """Call the operator for this rank's block, with its shape and its offsets in ``global_size``."""
    shape = tuple(local.size(f"n{i}") for i in range(len(local.spec["size"])))
    return [emit_with(local, size=shape, offsets=_here(local))]


def _sample_block(local: Local) -> Sequence[object]:
    return [emit_with(local, offsets=_here(local))]


def _here(local: Local) -> tuple[object, ...]:
    offsets = local.args[position(local.spec.target, "offsets")]
    return tuple(local.offset(f"n{i}", base=offset) for i, offset in enumerate(offsets))
