"""From the text of a pipeline to passes that run: our passes, named pipelines, and MLIR's."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from torch_mlir import ir

from shardc.diagnostics.cli import (
    BadMlirPass,
    BadPassOption,
    BadPipeline,
    NestedPass,
    PassBrokeModule,
    PassFailed,
    UnknownPass,
    UnknownPassOption,
)
from shardc.diagnostics.options import OldSpelling
from shardc.passes.manager import pass_pipelines as pipelines
from shardc.passes.manager.base import Pass
from shardc.passes.manager.pass_pipelines import PIPELINES, MlirPass, build, run, title
from shardc.passes.manager.registry import PASSES


@dataclass(frozen=True)
class Mark(Pass):
    """Writes its options on the module."""

    name = "test-mark"
    text: str = "here"
    times: int = 1
    scale: float = 1.0
    loud: bool = False
    parts: tuple[str, ...] = ("a",)

    def run(self, module: ir.Module) -> None:
        module.operation.attributes["test.mark"] = ir.StringAttr.get(self.text * self.times)


@dataclass(frozen=True)
class Break(Pass):
    """Leaves a function that returns another type than it says."""

    name = "test-break"

    def run(self, module: ir.Module) -> None:
        function = module.body.operations[0]
        function.attributes["function_type"] = ir.TypeAttr.parse("() -> i32")


@dataclass(frozen=True)
class Stumble(Pass):
    """Raises what is no error of ours."""

    name = "test-stumble"

    def run(self, module: ir.Module) -> None:
        raise IndexError("oops")


@pytest.fixture(autouse=True)
def our_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Mark, Break, Stumble):
        monkeypatch.setitem(PASSES, cls.name, f"{__name__}:{cls.__name__}")
    monkeypatch.setitem(PIPELINES, "inner", "test-mark,cse")
    monkeypatch.setitem(PIPELINES, "outer", "inner,func.func(canonicalize)")
    monkeypatch.setitem(PIPELINES, "looped", "cse,looped")


@pytest.fixture
def module() -> Iterator[ir.Module]:
    with ir.Context() as context:
        context.enable_multithreading(False)
        yield ir.Module.parse("func.func @f() {\n  return\n}")


def test_options_have_the_types_of_their_fields() -> None:
    text = "test-mark{text='x y' times=2 scale=0.5 loud parts=b,c}"
    assert build(text) == [Mark(text="x y", times=2, scale=0.5, loud=True, parts=("b", "c"))]


def test_named_pipelines_include_one_another() -> None:
    assert [title(step) for step in build("outer,symbol-dce")] == [
        "test-mark",
        "cse",
        "func.func(canonicalize)",
        "symbol-dce",
    ]


def test_every_familiar_pass_is_registered_in_mlir() -> None:
    steps = build(",".join(pipelines.FAMILIAR_MLIR_PASSES))
    assert steps == [MlirPass(text=name) for name in pipelines.FAMILIAR_MLIR_PASSES]


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("test-mork", UnknownPass, "'test-mork'; did you mean test-mark or test-break?"),
        ("func.func(cze)", UnknownPass, "'cze'; did you mean cse?"),
        ("zzz{a=1}", UnknownPass, "no pass or pipeline 'zzz'\n"),
        ("test-mark{time=2}", UnknownPassOption, "no option 'time'; it has: text, times, scale, loud, parts"),
        ("test-break{time=2}", UnknownPassOption, "it has: none at all"),
        ("pipe-cut{cap-bytes=9}", OldSpelling, "cap-bytes is now spelled memory-limit-bytes\n  at: pipe-cut"),
        ("kern-fuse{numerics=eager}", OldSpelling, "numerics is now spelled rounding"),
        ("test-mark{times=few}", BadPassOption, "times='few': it must be an integer"),
        ("test-mark{scale=x}", BadPassOption, "must be a number"),
        ("test-mark{loud=maybe}", BadPassOption, "must be true or false"),
        ("cse{a=1}", BadMlirPass, "MLIR rejects 'cse{a=1}'"),
        ("func.func(test-mark)", NestedPass, "'test-mark' works on the whole module"),
        ("func.func(any(inner))", NestedPass, "inside any(...)"),
        ("looped", BadPipeline, "'looped' includes itself"),
        ("inner{a=1}", BadPipeline, "'inner' takes no options"),
    ],
)
def test_mistakes_are_named(text: str, error: type[Exception], part: str) -> None:
    with pytest.raises(error) as caught:
        build(text)
    assert part in str(caught.value)


def test_passes_of_both_kinds_run_in_order(module: ir.Module) -> None:
    seen = []
    run(module, build("test-mark{times=2},cse,test-mark"), after_pass=lambda name, _: seen.append(name))
    assert seen == ["test-mark", "cse", "test-mark"]
    assert module.operation.attributes["test.mark"].value == "here"


def test_a_pass_that_leaves_invalid_ir_is_named(module: ir.Module) -> None:
    with pytest.raises(PassBrokeModule, match="the pass 'test-break' produced invalid IR"):
        run(module, build("test-break"))


def test_verification_can_be_turned_off(module: ir.Module) -> None:
    run(module, build("test-break"), verify_each=False)
    with pytest.raises(ir.MLIRError):
        module.operation.verify()


def test_a_failing_pass_of_mlirs_is_named(module: ir.Module) -> None:
    name = "torch-verify-backend-contract-no-decompositions"
    module.body.append(ir.Operation.parse("func.func @g(%a: i32) { return }", context=module.context))
    with pytest.raises(PassFailed, match=f"the pass '{name}' failed: unsupported by backend contract"):
        run(module, build(name))


def test_any_other_error_says_in_which_pass(module: ir.Module) -> None:
    with pytest.raises(IndexError) as caught:
        run(module, build("test-stumble"))
    assert caught.value.__notes__ == ["in the pass test-stumble"]


def test_the_list_has_documentation_and_options() -> None:
    lines = [line.strip() for line in pipelines.describe_all().splitlines()]
    start = lines.index("test-mark")
    assert lines[start + 1 : start + 7] == [
        "Writes its options on the module.",
        "option text=here (text)",
        "option times=1 (an integer)",
        "option scale=1.0 (a number)",
        "option loud=false (true or false)",
        "option parts=a (a list such as a,b)",
    ]
    assert "outer = inner,func.func(canonicalize)" in lines
