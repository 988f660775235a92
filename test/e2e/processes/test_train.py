"""An artefact trained on four real processes: by its own command, by a user's script,
and where shardc is not installed.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import torch

from shardc.commands.run import run_artefact

pytestmark = pytest.mark.processes

ABSENT = ("shardc", "torch_mlir", "safetensors", "transformers", "typer", "rich", "numpy")

BLOCKER = f"""
import sys

class WithoutThem:
    '''A finder of modules that does not find some.'''
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {ABSENT!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [WithoutThem(finder) for finder in sys.meta_path]
"""


def losses_in(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss (\S+)", output)]


@pytest.mark.slow
def test_run_save_and_go_on(
    artefact: Path, tmp_path: Path, trained, capfd: pytest.CaptureFixture[str]
) -> None:
    expected, _ = trained([1e-3] * 4)
    assert run_artefact(artefact, 4, 2, {"load": None, "save": tmp_path / "half"}) == 0
    first = capfd.readouterr().out
    assert run_artefact(artefact, 4, 2, {"load": tmp_path / "half", "save": None}) == 0
    second = capfd.readouterr().out
    assert losses_in(first) + losses_in(second) == pytest.approx(expected, rel=1e-5)
    assert "step 2 " in first and "step 4 " in second


@pytest.mark.slow
def test_script(artefact: Path, tmp_path: Path, values: dict[str, torch.Tensor], trained, launch) -> None:
    losses, parameters = trained([1e-3, 5e-4, 2.5e-4])
    torch.save({**values, "scheduled": {"losses": losses, "parameters": parameters}}, tmp_path / "values.pt")
    done = launch("train_worker.py", 4, artefact, tmp_path / "values.pt")
    assert done.returncode == 0, done.stderr[:8000]
    assert "the script agrees" in done.stdout
    assert (
        "lr_scheduler.step" not in done.stderr
    )  # torch's warning about schedulers of optimizers that did not step


@pytest.mark.slow
def test_needs_torch_alone(artefact: Path, tmp_path: Path, trained, launch) -> None:
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(BLOCKER))
    done = launch(artefact / "run.py", 4, "--steps", 2, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr[:8000]
    assert losses_in(done.stdout) == pytest.approx(trained([1e-3] * 2)[0], rel=1e-5)


@pytest.mark.slow
def test_blocker_blocks(tmp_path: Path, launch) -> None:
    """The test above would pass anywhere if its blocker did nothing."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(BLOCKER))
    names = ", ".join(ABSENT)
    probe = (
        f"from importlib.util import find_spec\nprint([n for n in {ABSENT!r} if find_spec(n)])\nimport torch"
    )
    (tmp_path / "probe.py").write_text(probe)
    assert "[]" in launch(tmp_path / "probe.py", 1, PYTHONPATH=str(tmp_path)).stdout, (
        f"one of {names} was found"
    )


@pytest.mark.slow
def test_dims_that_do_not_divide(tmp_path: Path, launch) -> None:
    """A batch of 3 and layers of 33 and 5 on two ranks, and a checkpoint between plans."""
    done = launch("uneven_worker.py", 2, tmp_path / "checkpoint")
    assert done.returncode == 0, done.stderr[:8000]
    assert "uneven training agrees" in done.stdout


@pytest.mark.slow
def test_weights_of_several_parts(tmp_path: Path, launch) -> None:
    """Stored interleaved, shown as DTensor has them, saved and loaded from one plan to another."""
    done = launch("parts_worker.py", 2, tmp_path / "checkpoint")
    assert done.returncode == 0, done.stderr[:8000]
    assert "training with parts agrees" in done.stdout
