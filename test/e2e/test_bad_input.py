"""Bad input of users to ``shardc compile``, ``shardc opt``, ``compile_step``, and a compiled step.

Every case looks at the whole way: the message names the thing and says what to do, the exit code is 2, there
is no traceback, and nothing was written or lost.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import shardc
from shardc.cli import main
from shardc.diagnostics.api import MeshIsNotTheWorld, ShapeNotCompiled
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.plan import (
    AxisUsedTwice,
    BadShardingEntry,
    PatternMatchesNothing,
    TooManyDims,
    TooManyWays,
    UnknownAxis,
)
from shardc.runtime.errors import (
    BadSeed,
    BatchMismatch,
    HyperparameterMismatch,
    RuntimeFailure,
    StepNotCopied,
    WorldMismatch,
)
from shardc.step.compile_step import CompiledStep

SCRIPT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.up(x)
        return self.down(torch.relu(x))


def build():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, (torch.ones(8, 8),), lambda out, batch: out.square().mean()
"""


@dataclass(frozen=True)
class Outcome:
    """What one command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    def refuses(self, *parts: str, code: int = 2) -> None:
        """The command failed as it should, in words and not in a traceback."""
        assert self.code == code, self
        assert "Traceback" not in self.out + self.err
        assert "internal error" not in self.err
        for part in parts:
            assert part in self.err, self.err


Command = Callable[..., Outcome]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """``command("compile", path, ...)``: the command line in this process."""

    def run(*arguments: object, stdin: str | None = None) -> Outcome:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def compile_(command: Command, tmp_path: Path) -> Iterator[Command]:
    """``compile_("--mesh", "data=2", script=..., out=...)``; afterwards nothing may be left half-written."""

    def run(*arguments: object, script: str = SCRIPT, out: Path | None = None) -> Outcome:
        (tmp_path / "train.py").write_text(script)
        return command("compile", tmp_path / "train.py", "-o", out or tmp_path / "out", *arguments)

    yield run
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.rglob(".*") if path.name.endswith((".new", ".old"))]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ("--mesh data=9", ["TooManyWays: dim 0 of '0' has 8 elements and cannot be sharded 9 ways (data)"]),
        (
            "--mesh data=2 --micro-batches 5",
            ["cannot be sharded 10 ways (data x micro)", "axes of at most 8"],
        ),
        (
            "--mesh data=2,micro=2 --micro-batches 2",
            ["BadMeshSpec: ", "axis 'micro' is reserved for micro-batches"],
        ),
        (
            "--mesh daat=2",
            ["UnknownAxis: preset 'data' needs mesh axis", "the mesh has daat (2)", "data:daat"],
        ),
        ("--mesh data=2 --plan zero3:fsdp", ["preset 'zero3' needs mesh axis 'fsdp'", "zero3:data"]),
        ("--mesh data=2 --plan data*auto", ["AutoInProduct: ", "write plan='auto'"]),
        ("--mesh data=2 --plan auto --memory-budget 1GB", ["NotSearched: ", "leave memory_budget out"]),
        ("--mesh data=2 --plan zreo3", ["'zreo3' in plan 'zreo3' is not a preset; did you mean 'zero3'?"]),
        (
            "--mesh data=2 --plan data*tesnor",
            ["'tesnor' in plan 'data*tesnor' is not a preset; did you mean 'tensor'?"],
        ),
        (
            "--mesh data=2 --plan nowhere.json",
            ["BadPlanFile: plan nowhere.json", "there is no such file", "plan.json"],
        ),
        ("--mesh data=2 --clip-grad-norm 0", ["BadArgument: clip_grad_norm is 0.0, not a number above 0"]),
    ],
)
def test_mesh_and_plan(compile_: Command, arguments: str, parts: list[str]) -> None:
    compile_(*arguments.split()).refuses(*parts, "\n  try: ")


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("def build():", "def make():", ["BadScript: ", "defines no function build()"]),
        (
            "    model = Net()",
            "    model = Net(width=3)",
            ["ScriptFailed: ", "raised TypeError", "train.py:16"],
        ),
        (
            "import torch\n",
            "import torch\nraise SystemExit\n",
            ["ScriptFailed: ", "ended the process (exit code", "train.py:2"],
        ),
        ("optimizer, (torch", "None, (torch", ["BadScript: ", "whose optimizer is None", "train.py:15"]),
        (", lambda out, batch: out.square().mean()", "", ["LossNotFound: ", "[8, 4]", "pass loss=fn"]),
        ("out.square().mean()", "out", ["LossNotScalar: ", "a torch.float32 tensor of shape [8, 4]"]),
        ("torch.optim.AdamW", "torch.optim.LBFGS", ["OptimizerUnsupported: LBFGS.step() cannot be traced"]),
        (
            "torch.optim.AdamW",
            "torch.optim.SparseAdam",
            ["OptimizerUnsupported: SparseAdam", "dense gradients"],
        ),
        (
            "lambda out, batch: out",
            "lambda out: out",
            ["LossNotTaken: ", "too many positional arguments", "train.py:15"],
        ),
        (
            "(torch.ones(8, 8),)",
            "{'y': torch.ones(8, 8)}",
            ["BatchNotTaken: ", "it has no parameter 'y'", "train.py:15"],
        ),
        ("(model.parameters()", "(Net().parameters()", ["OptimizerParameterUnknown: ", "shape [16, 8]"]),
        ("(torch.ones(8, 8),)", "()", ["BatchUnsupported: ", "it holds no tensor"]),
        ("(torch.ones(8, 8),)", "(object(),)", ["BatchUnsupported: ", "0 is a object"]),
        ("(torch.ones(8, 8),)", "(torch.ones(8, 9),)", ["TraceFailed: ", "[8, 9] X [8, 16]", "train.py:11"]),
        (
            "        return self",
            "        if x.sum() > 0:\n            x = -x\n        return self",
            ["DataDependent: ", "train.py:12", "torch.where"],
        ),
    ],
)
def test_scripts(compile_: Command, old: str, new: str, parts: list[str]) -> None:
    assert old in SCRIPT
    compile_("--mesh", "data=2", script=SCRIPT.replace(old, new, 1)).refuses(*parts, "\n  try: ")


META = SCRIPT.replace("    model = Net()", "    with torch.device('meta'):\n        model = Net()")


RULE = """import shardc
from torch import Tensor


@torch.library.custom_op("shardc_bad::running_sum", mutates_args=())
def running_sum(x: Tensor) -> Tensor:
    return x.cumsum(-1)


@shardc.rule("shardc_bad::running_sum", samples=[(torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2),)])
def rule(call):
    return "([rows,columns])->([rows,columns])"


class Net"""


def test_an_unsound_custom_rule(compile_: Command) -> None:
    """The counterexample: how the sample was cut, and the first element that comes out otherwise."""
    script = SCRIPT.replace("class Net", RULE, 1)
    line = script.splitlines().index("@shardc.rule(" + RULE.split("@shardc.rule(")[1].splitlines()[0]) + 1
    compile_("--mesh", "data=2", script=script).refuses(
        "UnsoundRule: the rule of shardc_bad.running_sum is wrong: result 0 is off by 0.3 of its largest "
        "magnitude",
        "\n  rule: ([rows,columns])->([rows,columns])\n  cut:  columns into 2\n",
        "\n  sample: [2,4] float32 cut [{}, {columns}]\n  found: result 0 at [0, 2]: expected 6, found 3\n",
        f"train.py:{line}\n  try: correct the rule's factors",
    )


def test_a_model_without_values_cannot_be_verified(compile_: Command) -> None:
    outcome = compile_("--mesh", "data=2", "--verify", script=META)
    outcome.refuses("NoValues: up.weight has no values: the model is on the meta device")


def test_a_model_without_values_is_compiled_and_check_says_what_is_missing(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(META)
    assert command("compile", tmp_path / "train.py", "--mesh", "data=2", "-o", tmp_path / "out").code == 0
    assert not (tmp_path / "out" / "state.safetensors").exists()
    command("check", tmp_path / "out").refuses(
        "BadArtefact: ", "for the param 'up.weight'", "on the meta device"
    )


def test_folders_that_are_not_ours(compile_: Command, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    for out in (mine, mine / "notes.txt"):
        compile_("--mesh", "data=2", out=out).refuses("NotOurFolder: ", str(out), "it is not overwritten")
    compile_("--mesh", "data=2", out=Path()).refuses("NotOurFolder: ", "is the current folder")
    below = mine / "notes.txt" / "out"
    compile_("--mesh", "data=2", out=below).refuses(
        f"UnwritableOutput: can't write {below}: {mine / 'notes.txt'} is not a folder"
    )
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    compile_("--mesh", "data=2", out=link).refuses("NotOurFolder: ")
    assert [(path.name, path.read_text()) for path in mine.iterdir()] == [("notes.txt", "mine")]


@pytest.mark.slow
def test_torch_prints_no_traceback_of_its_own(tmp_path: Path) -> None:
    """Its logger writes where no test in this process can look: one process for each way."""
    (tmp_path / "train.py").write_text(SCRIPT.replace("torch.ones(8, 8)", "torch.ones(8, 9)"))
    arguments = ["compile", "train.py", "--mesh", "data=2", "-o", "out"]
    for debug in (False, True):
        code = f"import sys; from shardc.cli import main; sys.exit(main({arguments + ['--debug'] * debug!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ,
            check=False,
        )
        assert done.returncode == 2
        assert "TraceFailed: " in done.stderr
        assert ("Traceback" in done.stderr) is debug
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["train.py"]


# -- shardc opt

STEP = """func.func @step(%w: !torch.vtensor<[4,8],f32> {dist.name = "w", dist.role = "param"},
                %x: !torch.vtensor<[2,4],f32> {dist.name = "x", dist.role = "input"}) -> !torch.vtensor<[2,8],f32> {
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,8],f32> -> !torch.vtensor<[2,8],f32>
  return %0 : !torch.vtensor<[2,8],f32>
}
"""  # noqa: E501
ROWS = """func.func @rows(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %dim = torch.constant.int 7
  %dims = torch.prim.ListConstruct %dim : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.sum.dim_IntList %x, %dims, %true, %none : !torch.vtensor<[4,8],f32>, !torch.list<int>, !torch.bool, !torch.none -> !torch.vtensor<[4,4],f32>
  %1 = torch.aten.div.Tensor %x, %0 : !torch.vtensor<[4,8],f32>, !torch.vtensor<[4,4],f32> -> !torch.vtensor<[4,8],f32>
  return %1 : !torch.vtensor<[4,8],f32>
}
"""  # noqa: E501
VIEW = """func.func @step(%x: !torch.vtensor<[4,8],f32> {dist.name = "x", dist.role = "input"}) -> !torch.vtensor<[9],f32> {
  %nine = torch.constant.int 9
  %sizes = torch.prim.ListConstruct %nine : (!torch.int) -> !torch.list<int>
  %0 = torch.aten.view %x, %sizes : !torch.vtensor<[4,8],f32>, !torch.list<int> -> !torch.vtensor<[9],f32>
  return %0 : !torch.vtensor<[9],f32>
}
"""  # noqa: E501
INTEGERS = """"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"]]} : () -> ()
func.func @rows(%q: !torch.vtensor<[2,4,8,4],si64> {dist.sharding = #dist.sharding<@mesh, [["data"], [], [], []], []>}) -> !torch.vtensor<[2,4,8,4],si64> {
  %none = torch.constant.none
  %true = torch.constant.bool true
  %scale = torch.constant.float 2.500000e-01
  %zero = torch.constant.int 0
  %0:2 = torch.operator "torch.shardc.attention"(%q, %q, %q, %none, %true, %scale, %zero) : (!torch.vtensor<[2,4,8,4],si64>, !torch.vtensor<[2,4,8,4],si64>, !torch.vtensor<[2,4,8,4],si64>, !torch.none, !torch.bool, !torch.float, !torch.int) -> (!torch.vtensor<[2,4,8,4],si64>, !torch.vtensor<[2,4,8],f32>)
  return %0#0 : !torch.vtensor<[2,4,8,4],si64>
}
"""  # noqa: E501
UNKNOWN_OPERATOR = STEP.replace(
    "torch.aten.mm %x, %w : !torch.vtensor<[2,4],f32>, !torch.vtensor<[4,8],f32> ->",
    'torch.operator "mylib.op"(%x, %w) : (!torch.vtensor<[2,4],f32>, !torch.vtensor<[4,8],f32>) ->',
)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("text", "pipeline", "parts"),
    [
        (
            STEP,
            "dist-propagat",
            ["UnknownPass: ", "'dist-propagat'; did you mean dist-propagate or dist-pad"],
        ),
        (
            STEP,
            "dist-apply-plan{plans=data}",
            ["UnknownPassOption: ", "no option 'plans'; it has: plan, mesh"],
        ),
        (
            STEP,
            "verify-level{level=two}",
            ["BadPassOption: ", "can't take level='two': it must be an integer"],
        ),
        (STEP, "verify-level{level=2", ["BadPipeline: ", "this '{' is never closed", "            ^\n"]),
        (STEP, "func.func(dist-propagate)", ["NestedPass: 'dist-propagate' works on the whole module"]),
        (STEP, "rank", ["LevelBroken: ", "the module has no dist.mesh", "dist-apply-plan{mesh=data=2},rank"]),
        (STEP, "dist-apply-plan{mesh=data=3},rank", ["TooManyWays: dim 0 of 'x' has 2 elements"]),
        (
            STEP,
            "dist-apply-plan{mesh=data}",
            ["BadPassOption: ", "can't take mesh='data'", "data=2,tensor=2"],
        ),
        (STEP, "dist-apply-plan{mesh=data=two}", ["BadPassOption: "]),
        (STEP, "dist-apply-plan{mesh=data=0}", ["BadPassOption: "]),
        (STEP, "dist-apply-plan{mesh=data=2,data=2}", ["BadPassOption: "]),
        (STEP, "dist-apply-plan{mesh=data=2 plan=tensr}", ["did you mean 'tensor'?"]),
        (STEP[:150], "rank", ["MalformedMlir: ", ":2:"]),
        (
            STEP.replace("aten.mm", "aten.mmm"),
            "rank",
            ["MalformedMlir: custom op 'torch.aten.mmm' is unknown", ":3:8"],
        ),
        (
            UNKNOWN_OPERATOR,
            "dist-apply-plan{mesh=data=2}",
            ["UnknownOperation: PyTorch has no operator mylib.op", ":3"],
        ),
        (
            STEP.replace("[2,8]", "[?,8]"),
            "dist-apply-plan{mesh=data=2}",
            ["UnreadableOperation: torch.aten.mm", "static shapes"],
        ),
        ("hello world", "rank", ["MalformedMlir: custom op 'hello' is unknown", ":1:1"]),
        (
            ROWS,
            "kern-fuse",
            ["WrongCall: torch.aten.sum.dim_IntList ", "Dimension out of range", ":6:8"],
        ),
        (
            ROWS.replace("int 7", "int 1"),
            "kern-fuse",
            ["WrongCall: ", "result 0 has shape [4, 1], not [4, 4]", ":6:8"],
        ),
        (
            VIEW,
            "dist-apply-plan{mesh=data=2}",
            ["UnreadableOperation: torch.aten.view", "[4, 8] has not as many elements as [9]", ":4"],
        ),
        (
            INTEGERS,
            "dist-partition",
            ["LevelBroken: the module is not at level 2: shardc.attention has no dist.shardings", ":7"],
        ),
        (
            INTEGERS,
            "dist-propagate,dist-insert-reshards,dist-partition",
            ["WrongCall: torch.shardc.attention ", "need one floating dtype", ":7:10"],
        ),
    ],
)
@pytest.mark.parametrize("stdin", [False, True])
def test_opt(
    command: Command, tmp_path: Path, text: str, pipeline: str, parts: list[str], stdin: bool
) -> None:
    (tmp_path / "in.mlir").write_text(text)
    source = "-" if stdin else tmp_path / "in.mlir"
    outcome = command(
        "opt", source, "--pipeline", pipeline, "-o", tmp_path / "out.mlir", stdin=text if stdin else None
    )
    outcome.refuses(*parts, "\n  try: ")
    if "\n  at: " in outcome.err:
        assert ("<stdin>:" if stdin else f"{tmp_path / 'in.mlir'}:") in outcome.err
    assert not (tmp_path / "out.mlir").exists()


# -- compile_step


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def compiled(mesh: dict[str, int], plan: Any = "data") -> CompiledStep:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss = lambda out, batch: out.square().mean()  # noqa: E731
    return shardc.compile_step(model, optimizer, (torch.ones(8, 8),), mesh=mesh, plan=plan, loss=loss)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("plan", "kind", "message"),
    [
        ({"0.weight": ["tensor", "tensor"]}, AxisUsedTwice, "'0.weight' uses axis 'tensor' twice"),
        (
            {"0.weight": ["tensr"]},
            UnknownAxis,
            "'0.weight' needs mesh axis 'tensr'; the mesh has data, tensor",
        ),
        ({"0.bias": ["tensor", None]}, TooManyDims, r"'0.bias' has 2 dims, but its shape is \[16\]"),
        (
            {"0.wieght": ["tensor"]},
            PatternMatchesNothing,
            "'0.wieght' (.|\n)*the nearest names are 0.weight, 2.weight",
        ),
        ({"0.weight": "tensor"}, BadShardingEntry, "'0.weight' has the invalid entry 'tensor'"),
        ({"2.weight": [["data", "tensor", "tensor"]]}, AxisUsedTwice, "'2.weight' uses axis 'tensor' twice"),
        ({"2.bias": [["data", "tensor"]], "0": ["tensor"]}, TooManyWays, "dim 0 of '2.bias' has 4 elements"),
    ],
)
def test_plans_of_patterns(plan: dict[str, Any], kind: type[ShardcError], message: str) -> None:
    with pytest.raises(kind, match=message):
        compiled({"data": 2, "tensor": 4}, plan)


def test_a_mesh_that_is_not_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        MeshIsNotTheWorld,
        match=r"the mesh data 2 has 2 devices, but 4 processes run(.|\n)*--nproc-per-node 2",
    ):
        compiled({"data": 2})


def test_a_step_without_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    step = compiled({"data": 2})
    assert not hasattr(step, "no_such_thing")  # and this joins no processes
    with pytest.raises(WorldMismatch, match="a mesh of 2 ranks"):
        step((torch.ones(8, 8),))


@pytest.fixture(scope="module")
def lone_step() -> CompiledStep:
    """A step on a mesh of one, which runs in this process."""
    return compiled({"data": 1})


def test_a_step_is_not_copied(lone_step: CompiledStep) -> None:
    for work in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(StepNotCopied, match="a step cannot be copied or pickled"):
            work(lone_step)


def test_a_seed_that_is_set_is_that_of_the_running_step(lone_step: CompiledStep) -> None:
    lone_step.seed = 5
    assert lone_step.running.seed == 5
    with pytest.raises(BadSeed, match="from -2"):
        lone_step.seed = 2**63


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.ones(8, 8, dtype=torch.float64),), r"batch leaf '0' is float64 \[8, 8\]"),
        ({"x": torch.ones(8, 8)}, "the program takes a list or tuple of 1"),
        (None, "the program takes a list or tuple of 1"),
        ((torch.ones(8, 8).to_sparse(),), "a tensor of layout torch.sparse_coo; the program takes dense"),
        ((torch.ones(8, 8, device="meta"),), "batch leaf '0' is on the meta device"),
    ],
)
def test_a_batch_unlike_the_example(lone_step: CompiledStep, batch: Any, message: str) -> None:
    before, done = lone_step.state_dict()["0.weight"].full_tensor().clone(), lone_step.steps_done
    with pytest.raises(BatchMismatch, match=message):
        lone_step(batch)
    assert torch.equal(lone_step.state_dict()["0.weight"].full_tensor(), before)
    assert lone_step.steps_done == done


def test_a_batch_that_the_model_cannot_take(lone_step: CompiledStep) -> None:
    with pytest.raises(ShapeNotCompiled, match=r"float32 \[8, 9\]"):
        lone_step((torch.ones(8, 9),))


def test_a_constant_of_the_optimizer_that_was_changed(lone_step: CompiledStep) -> None:
    group = lone_step._optimizer.param_groups[0]
    group["eps"] = 1e-3
    try:
        with pytest.raises(
            HyperparameterMismatch, match=r"group0.eps is now 0.001; .* compiled with 1e-08, as a constant"
        ):
            lone_step((torch.ones(8, 8),))
    finally:
        group["eps"] = 1e-8
    with pytest.raises(HyperparameterMismatch, match=r"no hyperparameter 'group0.lrr'(.|\n)*group0.lr"):
        lone_step.hyper["group0.lrr"] = 0.1


def test_what_a_step_saves_and_loads(lone_step: CompiledStep, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: lone_step.save(tmp_path), "NotOurFolder: "),
        (lambda: lone_step.save_plan(tmp_path), "UnwritableOutput: "),
        (lambda: lone_step.save_plan(tmp_path / "no" / "plan.json"), "UnwritableOutput: "),
        (
            lambda: lone_step.save_checkpoint(tmp_path),
            "CheckpointNotSaved: the folder is not empty and holds no checkpoint",
        ),
        (lambda: lone_step.load_checkpoint(tmp_path), "BadCheckpoint: it holds no checkpoint"),
        (
            lambda: lone_step.load_state_dict({"0.weight": torch.ones(3)}),
            "StateMismatch: the state dict lacks '0.bias'",
        ),
    ]
    for attempt, message in refusals:
        with pytest.raises((ShardcError, RuntimeFailure)) as caught:
            attempt()
        assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
