"""Each command hands its arguments to the driver and turns the outcome into output and an exit code."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from shardc.cli import main
from shardc.diagnostics.base import ShardcError
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.step import StepOptions


class FakeDriver:
    """Stands in for a driver's function: records its arguments, then returns or raises ``outcome``."""

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, *arguments: object) -> object:
        self.calls.append(arguments)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    def install_(module: str, function: str, outcome: object) -> FakeDriver:
        fake, driver = ModuleType(f"shardc.commands.{module}"), FakeDriver(outcome)
        setattr(fake, function, driver)
        monkeypatch.setitem(sys.modules, fake.__name__, fake)
        return driver

    return install_


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("")
    return path


def report(text: str, passed: bool = True) -> SimpleNamespace:
    return SimpleNamespace(render=lambda: text, passed=passed)


def test_compile_passes_everything_on(install, script: Path, tmp_path: Path, capsys) -> None:
    driver = install("compile", "compile_script", report("4 ranks"))
    arguments = (
        f"compile {script} --mesh data=2,pipe=2 --micro-batches 4 --plan data*pipeline --clip-grad-norm 1.0 "
        "--rounding eager --target sm_90 --matmuls extern --verify --seed 3 --autocast bfloat16 "
        "--schedule interleaved --stages layers.1,layers.2,layers.3 --stale-weights "
        "--recompute full,none,none,none --memory-limit-bytes 4e9 --gather step "
        "--forbid-fusion tanh+exp --forbid-fusion a.py:1+a.py:2 --force-fusion mul+exp -o"
    )
    assert main([*arguments.split(), str(tmp_path / "out")]) == 0
    options = StepOptions(
        Parallelism({"data": 2, "pipe": 2}, "data*pipeline", 4, recompute=("full", "none", "none", "none")),
        Pipeline(
            schedule="interleaved",
            stages=("layers.1", "layers.2", "layers.3"),
            stale_weights=True,
            memory_limit_bytes=4e9,
            gather="step",
        ),
        Kernels(
            target="sm_90",
            matmuls="extern",
            forbid_fusion=("tanh+exp", "a.py:1+a.py:2"),
            force_fusion=("mul+exp",),
        ),
        Numerics(clip_grad_norm=1.0, autocast="bfloat16", rounding="eager", seed=3, verify=True),
    )
    assert driver.calls == [(script, tmp_path / "out", options)]
    assert capsys.readouterr().out == "4 ranks\n"


def test_compile_defaults(install, script: Path, tmp_path: Path) -> None:
    driver = install("compile", "compile_script", report(""))
    assert main(["compile", str(script), "--mesh", "data=2", "--no-fuse", "-o", str(tmp_path)]) == 0
    options = StepOptions(Parallelism({"data": 2}), kernels=Kernels(fuse=False))
    assert driver.calls == [(script, tmp_path, options)]


def test_compile_refuses_a_bad_mesh_before_it_compiles(install, script: Path, capsys) -> None:
    driver = install("compile", "compile_script", report(""))
    assert main(["compile", str(script), "--mesh", "data", "-o", "out"]) == 2
    assert driver.calls == []
    assert capsys.readouterr().err.startswith("BadMesh: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "nowhere.py", "--mesh", "data=2", "-o", "out"],
        ["compile"],
        ["run", "nowhere", "--nproc", "2"],
        ["check", "nowhere"],
        ["explain", "nowhere"],
        ["frobnicate"],
        ["check", ".", "--steps", "0"],
        ["check", ".", "--stops", "1"],
    ],
)
def test_bad_arguments_exit_with_2_and_say_how_to_get_help(arguments: list[str], capsys) -> None:
    assert main(arguments) == 2
    assert "Try 'shardc" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1])
def test_run_gives_the_exit_code_of_the_processes(install, tmp_path: Path, code: int) -> None:
    driver = install("run", "run_artefact", code)
    assert (
        main(["run", str(tmp_path), "--nproc", "4", "--steps", "2", "--save", "there", "--import", "ops"])
        == code
    )
    assert driver.calls == [
        (tmp_path, 4, 2, {"load": None, "save": Path("there"), "trace": None}, ["ops"], None)
    ]


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_check_exits_with_1_when_the_programs_differ(
    install, tmp_path: Path, capsys, passed: bool, code: int
) -> None:
    driver = install("check", "check_artefact", report("loss: equal", passed))
    assert main(["check", str(tmp_path), "--import", "one", "--import", "two.py"]) == code
    assert driver.calls == [(tmp_path, 3, ["one", "two.py"])]
    assert capsys.readouterr().out == "loss: equal\n"


def test_explain_takes_a_name(install, tmp_path: Path, capsys) -> None:
    driver = install("explain", "explain", "w: data on dim 0")
    assert main(["explain", str(tmp_path), "w"]) == 0
    assert main(["explain", str(tmp_path)]) == 0
    assert driver.calls == [(tmp_path, "w", ()), (tmp_path, None, ())]
    assert capsys.readouterr().out == "w: data on dim 0\n" * 2


class Refused(ShardcError):
    template = "refused {thing}"
    exit_code = 1


def test_an_error_of_ours_is_rendered_with_its_exit_code(install, tmp_path: Path, capsys) -> None:
    install("check", "check_artefact", Refused(thing="this", where="a.py:3"))
    assert main(["check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "Refused: refused this\n  at: a.py:3\n"


@pytest.mark.parametrize("arguments", [["--debug", "check", "FOLDER"], ["check", "FOLDER", "--debug"]])
def test_debug_shows_the_traceback(install, tmp_path: Path, capsys, arguments: list[str]) -> None:
    install("check", "check_artefact", Refused(thing="this"))
    assert main([str(tmp_path) if argument == "FOLDER" else argument for argument in arguments]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_any_other_error_is_one_line_and_exits_with_3(install, tmp_path: Path, capsys) -> None:
    error = IndexError("out of\nrange")
    error.add_note("in the pass dist-propagate")
    install("check", "check_artefact", error)
    assert main(["check", str(tmp_path)]) == 3
    assert capsys.readouterr().err == (
        "internal error in the pass dist-propagate: IndexError: out of (run with --debug for the traceback)\n"
    )


def test_a_current_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["schedule"]) == 2
    assert "NoCurrentFolder: " in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)


def test_an_interrupt_exits_with_130(install, tmp_path: Path) -> None:
    class Interrupting:
        def __call__(self, *_: object) -> None:
            raise KeyboardInterrupt

    driver = install("check", "check_artefact", None)
    sys.modules["shardc.commands.check"].check_artefact = Interrupting()  # type: ignore[attr-defined]
    assert main(["check", str(tmp_path)]) == 130
    assert driver.calls == []


def test_version(capsys) -> None:
    import shardc

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shardc {shardc.__version__}\n"


@pytest.mark.parametrize("command", ["compile", "run", "check", "explain", "opt"])
def test_help_has_an_example_of_the_command(command: str, capsys) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert f"  shardc {command} " in out.split("Example")[1]
