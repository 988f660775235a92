"""The texts of a program's levels."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.step.levels import Levels

MODULE = (
    "func.func @step(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> { return %x : "
    "!torch.vtensor<[4],f32> }"
)


def test_a_level_is_what_the_module_was_when_it_was_kept() -> None:
    module = ir.Module.parse(MODULE, new_context())
    module.operation.attributes["dist.note"] = ir.StringAttr.get("first", module.context)
    levels = Levels()
    levels.keep("1-global", module)
    expected = module.operation.get_asm(enable_debug_info=True)
    module.body.operations[0].erase()
    module.operation.attributes["dist.note"] = ir.StringAttr.get("second", module.context)
    levels.keep("2-annotated", module)
    assert list(levels) == ["1-global", "2-annotated"]
    assert levels["1-global"] == expected
    assert "func.func" not in levels["2-annotated"] and '"second"' in levels["2-annotated"]
