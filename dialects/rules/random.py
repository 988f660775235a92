"""Rule of ``shardc::uniform``: every dim may be cut, as a number depends on its place in the whole alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.rule import Local, Rule, rule_for


def _block(local: Local) -> Sequence[Any]:
    """This rank's block: its shape, and its place in ``global_size``."""
    seed, op, size, offsets, global_size, dtype = local.args
    here = tuple(local.offset(f"n{i}", base=offset) for i, offset in enumerate(offsets))
    shape = tuple(local.size(f"n{i}") for i in range(len(size)))
    return [local.emit("shardc.uniform", seed, op, shape, here, global_size, dtype)]


@rule_for("shardc.uniform")
def uniform(call: OpCall) -> Rule:
    """``(seed []) -> [n...]``."""
    sizes = {f"n{i}": size for i, size in enumerate(call["size"])}
    return Rule(((),), (tuple((f,) for f in sizes),), sizes, lower=_block)
