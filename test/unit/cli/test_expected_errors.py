"""``--verify-diagnostics``: which comments are met by which errors."""

from dataclasses import dataclass

import pytest
from torch_mlir import ir

from shardc.commands.opt import run_pipeline
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.cli import BadExpectation, DiagnosticMismatch
from shardc.options.opt import OptOptions
from shardc.passes.manager.base import Pass
from shardc.passes.manager.registry import PASSES

VERIFY = OptOptions(verify_diagnostics=True)
UNDECLARED = "use of undeclared SSA value"


class Disliked(ShardcError):
    template = "{what} is disliked"


@dataclass(frozen=True)
class Dislike(Pass):
    """Refuses every module, at its first op or nowhere in particular."""

    name = "test-dislike"
    somewhere: bool = True

    def run(self, module: ir.Module) -> None:
        location = module.body.operations[0].location
        raise Disliked(
            what="this", where=f"{location.filename}:{location.start_line}" if self.somewhere else "--mesh"
        )


@pytest.fixture(autouse=True)
def our_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSES, Dislike.name, f"{__name__}:Dislike")


@pytest.mark.parametrize(
    "text",
    [
        "func.func @f() {\n  // expected-error@+1 {{undeclared SSA}}\n  return %x : i32\n}",
        "func.func @f() {\n  return %x : i32\n  // expected-error@-1 {{undeclared SSA}}\n}",
        "func.func @f() {\n  return %x : i32 // expected-error {{undeclared SSA}}\n}",
        "func.func @f() {\n  // expected-error@below {{undeclared SSA}}\n  return %x : i32\n}",
        "func.func @f() {\n  return %x : i32\n  // expected-error@above {{undeclared SSA}}\n}",
    ],
)
def test_an_expected_error_is_met(text: str) -> None:
    assert run_pipeline(text, "in.mlir", "", VERIFY) == ""


def test_several_errors_of_one_part_and_their_notes() -> None:
    text = """
func.func @f(%a: i32) -> i64 {
  // expected-note@below {{see current operation}}
  // expected-error@below {{type of return operand 0}}
  return %a : i32
}
func.func @g(%a: i32) -> i64 {
  // expected-error@+1 {{type of return operand 0}}
  return %a : i32
}"""
    assert run_pipeline(text, "in.mlir", "", VERIFY) == ""


def test_all_parts_are_looked_at_and_the_right_ones_printed() -> None:
    text = f"""// expected-error@+1 {{{{expected}}}}
func.func
// -----
func.func private @right()
// -----
// expected-error@+1 {{{{{UNDECLARED}}}}}
func.func @f() {{ return %x : i32 }}"""
    output = run_pipeline(text, "in.mlir", "cse", OptOptions(verify_diagnostics=True, split_input_file=True))
    assert output.count("func.func") == 1
    assert "@right" in output


def test_errors_of_our_passes_are_matched_by_line_and_text() -> None:
    text = "// expected-error@+1 {{this is disliked}}\nfunc.func private @f()"
    assert run_pipeline(text, "in.mlir", "test-dislike", VERIFY) == ""


def test_an_error_without_a_line_is_unknown() -> None:
    text = "// expected-error@unknown {{this is disliked}}\nfunc.func private @f()"
    assert run_pipeline(text, "in.mlir", "test-dislike{somewhere=false}", VERIFY) == ""


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (
            "// expected-error@+1 {{undeclared}}\nfunc.func private @f()",
            "in.mlir:2: not produced: expected error: undeclared",
        ),
        ("func.func @f() { return %x : i32 }", f"in.mlir:1: unexpected error: {UNDECLARED}"),
        (
            "// expected-error {{undeclared}}\nfunc.func @f() { return %x : i32 }",
            f"in.mlir:2: unexpected error: {UNDECLARED}",
        ),
        (
            "func.func @f() { return %x : i32 } // expected-error {{other}}",
            "in.mlir:1: not produced: expected error: other",
        ),
        ("func.func private @f() // expected-note {{see}}", "in.mlir:1: not produced: expected note: see"),
        (
            "// expected-error@unknown {{x}}\nfunc.func private @f()",
            "in.mlir:unknown: not produced: expected error: x",
        ),
    ],
)
def test_differences_fail_with_exit_code_1(text: str, detail: str) -> None:
    with pytest.raises(DiagnosticMismatch) as caught:
        run_pipeline(text, "in.mlir", "", VERIFY)
    assert detail in caught.value.render()
    assert caught.value.exit_code == 1


def test_one_error_meets_one_expectation() -> None:
    line = "// expected-error@below {{undeclared}}\n"
    with pytest.raises(DiagnosticMismatch, match=r"in\.mlir:3: not produced"):
        run_pipeline(f"{line}{line}func.func @f() {{ return %x : i32 }}", "in.mlir", "", VERIFY)


@pytest.mark.parametrize(
    "comment",
    ["// expected-error@+1 {undeclared}", "// expected-warning {{x}}", "// expected-error@up {{x}}"],
)
def test_a_comment_that_can_not_be_read_is_refused(comment: str) -> None:
    with pytest.raises(BadExpectation, match="at: line 2"):
        run_pipeline(f"\n{comment}", "in.mlir", "", VERIFY)
