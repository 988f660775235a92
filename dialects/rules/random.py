"""Rules of the random ops: every dim may be cut, as a number depends on its place in the whole alone."""

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import position
from shardc.dialects.rules.rule import Local, Rule, emit_with, numbered, plain, rule_for


@rule_for("shardc.uniform")
def uniform(call: OpCall) -> Rule:
    """``(seed []) -> [n...]``."""
    sizes = numbered("n", call["size"])
    return Rule(((),), (plain(sizes),), sizes, lower=_block)


@rule_for("shardc.poisson", "shardc.binomial", "shardc.standard_gamma")
def sample(call: OpCall) -> Rule:
    """``(parameters [n...], seed []) -> [n...]``, element by element."""
    sizes = numbered("n", call.result.shape)
    dims = plain(sizes)
    return Rule((*[dims] * (len(call.tensors) - 1), ()), (dims,), sizes, lower=_sample_block)


def _block(local: Local) -> Sequence[object]:
    """This rank's block: its shape, and its place in ``global_size``."""
    shape = tuple(local.size(f"n{i}") for i in range(len(local.spec["size"])))
    return [emit_with(local, size=shape, offsets=_here(local))]


def _sample_block(local: Local) -> Sequence[object]:
    return [emit_with(local, offsets=_here(local))]


def _here(local: Local) -> tuple[object, ...]:
    offsets = local.args[position(local.spec.target, "offsets")]
    return tuple(local.offset(f"n{i}", base=offset) for i, offset in enumerate(offsets))
