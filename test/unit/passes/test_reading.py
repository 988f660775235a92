"""Passes in a row share what they have read of the step, until one of them changes it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from torch_mlir import ir

from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.dialects.context import new_context
from shardc.passes.manager.pass_pipelines import MlirPass, run
from shardc.passes.manager.program import Program
from shardc.passes.manager.reading import Reading, ReadingPass

T = "!torch.vtensor<[4],f32>"
MODULE = f"func.func @step(%x: {T}) -> {T} {{ %0 = torch.aten.exp %x : {T} -> {T}\n return %0 : {T} }}"


@dataclass(frozen=True)
class Look(ReadingPass):
    """Notes the program that it is given, and says that it ``changes`` it."""

    name = "test-look"
    changes: bool = False
    seen: list[Program | None] = field(default_factory=list)

    def apply(self, reading: Reading) -> bool:
        self.seen.append(reading.program)
        return self.changes


def test_a_reading_holds_until_a_pass_changes_the_step() -> None:
    module = ir.Module.parse(MODULE, new_context())
    seen: list[Program | None] = []
    look, change = Look(False, seen), Look(True, seen)
    run(module, [look, look, change, look, MlirPass("cse"), look])
    assert all(program is not None for program in seen)
    first, second, third, fourth, fifth = map(id, seen)
    assert first == second == third and len({third, fourth, fifth}) == 3


def test_a_reading_that_is_given_is_used() -> None:
    module = ir.Module.parse(MODULE, new_context())
    reading, look = Reading(module), Look()
    run(module, [look], reading=reading)
    assert look.seen == [reading.program]


def test_a_module_without_a_mesh_is_no_sharded_one() -> None:
    with pytest.raises(LevelBroken, match=r"no dist\.mesh"):
        Reading(ir.Module.parse(MODULE, new_context())).sharded(level=2)
