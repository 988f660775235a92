"""``shardc opt``: arguments and output."""

import io
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch_mlir import ir

from shardc.cli import main
from shardc.commands.opt import run_pipeline, split_input
from shardc.diagnostics.base import ShardcError
from shardc.options.opt import OptOptions
from shardc.passes.manager.base import Pass
from shardc.passes.manager.registry import PASSES

SAME_TWICE = """func.func @f(%a: i32) -> i32 {
  %0 = arith.addi %a, %a : i32
  %1 = arith.addi %a, %a : i32
  %2 = arith.muli %0, %1 : i32
  return %2 : i32
}
"""


class Disliked(ShardcError):
    template = "the function {name} is disliked"


@dataclass(frozen=True)
class Dislike(Pass):
    """Refuses functions of a name."""

    name = "test-dislike"
    function: str = "g"

    def run(self, module: ir.Module) -> None:
        for operation in module.body.operations:
            if operation.sym_name.value == self.function:
                location = operation.location
                raise Disliked(
                    name=self.function,
                    where=f"{location.filename}:{location.start_line}:{location.start_col}",
                )


@pytest.fixture(autouse=True)
def our_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSES, Dislike.name, f"{__name__}:Dislike")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.mlir"
    path.write_text(SAME_TWICE)
    return path


@pytest.mark.parametrize(
    "arguments", [["--cse"], ["--pipeline", "func.func(cse)"], ["--pass-pipeline=builtin.module(cse)"]]
)
def test_passes_are_given_as_flags_or_as_a_pipeline(file: Path, capsys, arguments: list[str]) -> None:
    assert main(["opt", *arguments, str(file)]) == 0
    assert capsys.readouterr().out.count("arith.addi") == 1


def test_flags_take_options_and_may_follow_the_file(file: Path, capsys) -> None:
    assert (
        main(["opt", str(file), "--canonicalize=max-iterations=2", "--cse", "--test-dislike=function=h"]) == 0
    )
    assert capsys.readouterr().out.count("arith.addi") == 1


@pytest.mark.parametrize("arguments", [["--cse"], ["--cse", "-"]])
def test_input_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys, arguments: list[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(SAME_TWICE))
    assert main(["opt", *arguments]) == 0
    assert capsys.readouterr().out.count("arith.addi") == 1


def test_output_to_a_file(file: Path, tmp_path: Path, capsys) -> None:
    assert main(["opt", str(file), "-o", str(tmp_path / "out.mlir")]) == 0
    assert capsys.readouterr().out == ""
    assert main(["opt", str(tmp_path / "out.mlir")]) == 0
    assert capsys.readouterr().out == (tmp_path / "out.mlir").read_text()


def test_the_ir_after_each_pass_goes_to_standard_error(file: Path, capsys) -> None:
    assert main(["opt", "--cse", "--symbol-dce", "--print-ir-after-all", str(file)]) == 0
    assert "IR Dump After cse //" in (err := capsys.readouterr().err)
    assert "IR Dump After symbol-dce //" in err


def test_locations_are_printed_when_asked_for(file: Path, capsys) -> None:
    assert main(["opt", "--mlir-print-debuginfo", str(file)]) == 0
    assert "loc(" in capsys.readouterr().out


def test_unregistered_dialects_are_accepted_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    for flags, code in (([], 2), (["--allow-unregistered-dialect"], 0)):
        monkeypatch.setattr(sys, "stdin", io.StringIO('"nobody.op"() : () -> ()'))
        assert main(["opt", *flags]) == code
    assert "nobody" in capsys.readouterr().err


def test_malformed_mlir_shows_the_place(tmp_path: Path, capsys) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text("func.func @f() {\n\treturn %x : i32\n}\n")
    assert main(["opt", str(path)]) == 2
    assert capsys.readouterr().err.split("\n")[:4] == [
        "MalformedMlir: use of undeclared SSA value name",
        "     return %x : i32",
        "            ^",
        f"  at: {path}:2:9",
    ]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere.mlir"], "UnreadableInput: can't read nowhere.mlir: No such file or directory"),
        (["--cse", "--pipeline=cse"], "not both"),
        (["a.mlir", "b.mlir"], "one input file, not 2: a.mlir, b.mlir"),
        (["--cze"], "did you mean cse?"),
    ],
)
def test_bad_input_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys, arguments: list[str], part: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["opt", *arguments]) == 2
    assert part in capsys.readouterr().err


def test_files_that_are_no_text_or_can_not_be_written(file: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert main(["opt", str(tmp_path / "binary")]) == 2
    assert "it is not UTF-8 text" in capsys.readouterr().err
    assert main(["opt", str(file), "-o", str(tmp_path / "no" / "out")]) == 2
    assert "UnwritableOutput" in capsys.readouterr().err


@pytest.mark.parametrize("output", [".", "no/out.mlir", "x" * 300])
def test_an_output_that_cannot_be_written_is_said_before_the_input_is_read(output: str, capsys) -> None:
    assert main(["opt", "nowhere.mlir", "-o", output]) == 2
    assert "UnwritableOutput" in capsys.readouterr().err


def test_the_examples_of_the_help_run(file: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    assert main(["opt", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    examples = [line for line in lines if line.startswith("shardc opt ") and "--list" not in line]
    assert len(examples) == 2
    (tmp_path / "step.mlir").write_text(file.read_text())
    monkeypatch.chdir(tmp_path)
    for example in examples:
        assert main(shlex.split(example)[1:]) == 0, example
    assert (tmp_path / "out.mlir").is_file()


def test_an_error_of_a_pass_names_the_file_and_line() -> None:
    with pytest.raises(Disliked) as caught:
        run_pipeline("\nfunc.func private @g()\n", "in.mlir", "test-dislike", OptOptions())
    assert caught.value.render() == "Disliked: the function g is disliked\n  at: in.mlir:2:1"


def test_parts_keep_the_line_numbers_of_the_file() -> None:
    assert split_input("a\n// -----\nb\n// -----\nc") == ["a", "\n\nb", "\n\n\n\nc"]


def test_split_input_is_processed_part_by_part() -> None:
    text = "func.func private @f()\n// -----\nfunc.func private @f()\n"
    output = run_pipeline(text, "in.mlir", "", OptOptions(split_input_file=True))
    assert output.count("@f()") == 2
    assert output.count("// -----\n") == 1


def test_list_passes(capsys) -> None:
    assert main(["opt", "--list-passes"]) == 0
    assert (
        "test-dislike\n      Refuses functions of a name.\n      option function=g (text)\n"
        in capsys.readouterr().out
    )
