"""Rules of the random ops: every dim may be cut, as a number depends on its place in the whole alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.rule import Local, Rule, rule_for


@rule_for("shardc.uniform")
def uniform(call: OpCall) -> Rule:
    """``(seed []) -> [n...]``."""
    sizes = {f"n{i}": size for i, size in enumerate(call["size"])}
    return Rule(((),), (tuple((f,) for f in sizes),), sizes, lower=_block)


@rule_for("shardc.poisson", "shardc.binomial", "shardc.standard_gamma")
def sample(call: OpCall) -> Rule:
    """``(parameters [n...], seed []) -> [n...]``, element by element."""
    sizes = {f"n{i}": size for i, size in enumerate(call.results[0].shape)}
    dims = tuple((f,) for f in sizes)
    return Rule((*[dims] * (len(call.tensors) - 1), ()), (dims,), sizes, lower=_sample_block)


def _block(local: Local) -> Sequence[Any]:
    """This rank's block: its shape, and its place in ``global_size``."""
    seed, op, size, offsets, global_size, dtype = local.args
    shape = tuple(local.size(f"n{i}") for i in range(len(size)))
    return [local.emit("shardc.uniform", seed, op, shape, _here(local, offsets), global_size, dtype)]


def _sample_block(local: Local) -> Sequence[Any]:
    *parameters, seed, op, offsets, global_size = local.args
    return [local.emit(local.spec.target, *parameters, seed, op, _here(local, offsets), global_size)]


def _here(local: Local, offsets: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(local.offset(f"n{i}", base=offset) for i, offset in enumerate(offsets))
