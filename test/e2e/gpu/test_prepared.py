"""Files for a GPU's tests and benchmarks are prepared here; there they need torch and Triton alone.

The side that runs is started in a process that can import neither Torch-MLIR nor anything else of shardc's
dependencies, in Triton's interpreter in place of a GPU.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

pytestmark = pytest.mark.slow  # what it prepares takes minutes

TEST = Path(__file__).parents[2]
CASES = (
    "softmax",
    "cross_entropy",
    "matmul_gelu",
    "attention_window_bf16",
    "experts_bf16",
    "linear_loss_bf16",
)
ALONE = """
import runpy
import sys

ALLOWED = {allowed!r}


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch_mlir", "transformers", "safetensors", "highspy", "typer", "rich"):
            raise ImportError(f"{{name}} is not on the machine with the GPU")
        inside = name.startswith(ALLOWED) or any(allowed.startswith(f"{{name}}.") for allowed in ALLOWED)
        if name.startswith("shardc.") and not inside:
            raise ImportError(f"{{name}} is shardc's compiler")


sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""  # noqa: E501
ALLOWED = ("shardc.runtime", "shardc.backends.triton.interpreter.interpret_worker")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cases and a Llama of the interpreter's size, prepared for an H100."""
    made = tmp_path_factory.mktemp("prepared") / "gpu"
    only = ",".join((*CASES, "llama", "whole_llama"))
    command = [
        sys.executable,
        str(TEST / "gpu" / "prepare.py"),
        str(made),
        "--tiny",
        "--bench",
        "--only",
        only,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def _alone(folder: Path, tmp_path: Path, *command: str, code: int = 0) -> str:
    script = tmp_path / "alone.py"
    script.write_text(ALONE.format(allowed=ALLOWED))
    own = {"TRITON_INTERPRET": "1", "SHARDC_GPU_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *command], env=os.environ | own, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_prepared_programs_run_without_the_compiler(folder: Path, tmp_path: Path) -> None:
    """Pytest of ``test/gpu`` as ``run.py`` starts it; what needs a real GPU is skipped and says so."""
    said = _alone(folder, tmp_path, str(TEST / "gpu" / "run.py"), str(folder), "-k", "not artefacts")
    assert f"{len(CASES)} passed" in said, said
    for name, call in (("experts_bf16", "_grouped_mm"), ("linear_loss_bf16", "linear_cross_entropy")):
        program = (folder / "cases" / name / "program.py").read_text()
        assert f"ops.aten.{call}" not in program and f"ops.shardc.{call}" not in program, program
    assert "needs a GPU: this is Triton's interpreter" in said and "was left out of what was prepared" in said


@pytest.mark.slow
def test_what_fails_is_named_and_the_rest_runs(folder: Path, tmp_path: Path) -> None:
    """In the table of the tests, line by line; and what there is no time for is skipped."""
    other = tmp_path / "gpu"
    shutil.copytree(folder, other)
    (other / "cases" / "softmax" / "program.py").write_text(
        "def graph(rank, inputs):\n    raise ValueError('a | b')\n"
    )
    run = [
        str(TEST / "gpu" / "run.py"),
        str(other),
        "-k",
        "eager and (softmax or cross_entropy) and not artefacts",
    ]
    _alone(other, tmp_path, *run, code=1)
    table = (other / "tests.md").read_text()
    assert f"# Tests on no GPU, {datetime.date.today().isoformat()}" in table
    lines = {
        line.split("|")[1].partition("[")[2].partition("]")[0]: line
        for line in table.splitlines()
        if "[" in line
    }
    assert "| failed |" in lines["softmax"] and "ValueError: a / b" in lines["softmax"]
    assert "| passed |" in lines["cross_entropy"]
    _alone(other, tmp_path, *run, "--minutes", "0")
    assert "out of time" in (other / "tests.md").read_text()


@pytest.mark.slow
def test_after_an_error_of_the_device_another_process_runs_the_rest(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "gpu"
    shutil.copytree(folder, other)
    error = "RuntimeError('CUDA error: an illegal memory access was encountered')"
    (other / "cases" / "softmax" / "program.py").write_text(f"def graph(rank, inputs):\n    raise {error}\n")
    run = [
        str(TEST / "gpu" / "run.py"),
        str(other),
        "-k",
        "eager and (softmax or cross_entropy) and not artefacts",
    ]
    assert "1 passed" in _alone(other, tmp_path, *run, code=1)
    table = (other / "tests.md").read_text()
    lines = {
        line.split("|")[1].partition("[")[2].partition("]")[0]: line
        for line in table.splitlines()
        if "[" in line
    }
    assert "| failed |" in lines["softmax"] and "CUDA error: an illegal" in lines["softmax"]
    assert (
        "| passed |" in lines["cross_entropy"] and table.count("[softmax]") == table.count("# Tests on") == 1
    )


@pytest.mark.slow
def test_a_prepared_llama_trains(folder: Path, tmp_path: Path) -> None:
    said = json.loads(
        _alone(folder, tmp_path, str(TEST / "gpu" / "train_worker.py"), "llama").strip().splitlines()[-1]
    )
    assert len(said["losses"]) == 4
    assert said["losses"] == pytest.approx(said["expected"], rel=1e-4)


@pytest.mark.slow
def test_a_benchmark_writes_its_table(folder: Path, tmp_path: Path) -> None:
    """Of a whole model; the interpreter's times are no measurement, and the table says that. After an error
    of the device another process measures the rest.
    """
    other, table = tmp_path / "gpu", tmp_path / "table.md"
    shutil.copytree(folder, other)
    error = "RuntimeError('CUDA error: an illegal memory access was encountered')"
    (other / "bench" / "copy_softmax").mkdir(parents=True)
    (other / "bench" / "copy_softmax" / "program.py").write_text(f"raise {error}\n")
    only = "copy_softmax,whole_llama"
    _alone(
        other,
        tmp_path,
        str(TEST / "bench" / "gpu" / "run.py"),
        str(other),
        "--out",
        str(table),
        "--only",
        only,
    )
    text = table.read_text()
    assert "| copy_softmax | failed | RuntimeError: CUDA error" in text and text.count("copy_softmax") == 1
    assert "Triton's interpreter (no measurement)" in text and text.count("failed") == 1, text
    assert (
        text.index("copy_softmax") < text.index("| whole llama |")
        and text.count("# Triton's interpreter") == 2
    ), text


AGAIN = """
import sys

sys.path.insert(0, {bench!r})
import run

inputs = [run.torch.randn(1, 2, 16, 8) for _ in range(4)]
for name in ("flash_forward", "flash_backward"):
    call, _ = run.contender("flash", name, None, inputs)
    first, second = call(), call()
    assert all(run.torch.equal(a, b) for a, b in zip(first, second, strict=True))
"""


def test_what_attention_is_held_against_runs_again(tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(AGAIN.format(bench=str(TEST / "bench" / "gpu")))
    _alone(tmp_path, tmp_path, str(script))


def test_without_a_gpu_each_test_says_why_it_is_skipped(folder: Path) -> None:
    command = [sys.executable, str(TEST / "gpu" / "run.py"), str(folder), "-k", "bias_gelu or trains"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    )
    assert done.returncode == 0 and "no GPU: torch" in done.stdout, done.stdout
