"""Every core ATen op lowers, is a view, or stands with a reason in ``not_lowered.md``."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from shardc.passes.fuse.lower.table import ALONE, lowered_targets
from shardc.passes.fuse.reading.view import VIEWS

TABLE = Path(__file__).parent / "not_lowered.md"


def _core_targets() -> set[str]:
    """Targets as the IR names them."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if name != schema.name and hasattr(torch.ops.aten, name):
            op = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default", None)
            if isinstance(op, torch._ops.OpOverload) and torch.Tag.core in op.tags:
                found.add(str(op).removesuffix(".default"))
    return found


def _stays() -> dict[str, str]:
    """The reason of each op of the table."""
    rows = [line.split("|")[1:3] for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    return {f"aten.{name}": why.strip() for ops, why in rows for name in re.findall(r"`([^`]+)`", ops)}


def test_the_table_has_exactly_the_core_ops_that_do_not_lower() -> None:
    core, stays, lowered = _core_targets(), _stays(), lowered_targets() | VIEWS
    assert len(core) > 150 and all(stays.values())
    assert stays.keys() == core - lowered


def test_calls_worth_a_kernel_of_their_own_lower() -> None:
    assert lowered_targets() >= ALONE
