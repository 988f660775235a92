"""Training interrupted and resumed, on the same or another mesh, has the losses of uninterrupted training."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.optim import lr_scheduler, swa_utils

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.processes
def test_with_every_scheduler_on_the_same_and_on_other_meshes(tmp_path: Path, launch) -> None:
    def seen(mode: str, axis: str, ranks: int) -> dict[str, list[list[float]]]:
        done = launch("resume_worker.py", ranks, tmp_path, mode, axis)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads((tmp_path / f"{mode}-{axis}-{ranks}.json").read_text())

    whole = seen("whole", "data", 2)
    for axis, ranks in (("data", 2), ("tensor", 2), ("data", 4)):
        resumed = seen("resumed", axis, ranks)
        assert resumed.keys() == whole.keys()
        for name, expected in whole.items():
            found, wanted = (torch.tensor(v, dtype=torch.float64) for v in (resumed[name], expected))
            assert torch.allclose(found, wanted, rtol=1e-12, atol=0), f"{axis} {ranks}: {name}"
            if (axis, ranks) == ("data", 2):
                assert torch.equal(found, wanted), name


def test_there_are_no_other_schedulers() -> None:
    sys.path.insert(0, str(HERE))
    from resume_worker import SCHEDULERS

    bases = (lr_scheduler.LRScheduler,)
    every = {
        name
        for module in (lr_scheduler, swa_utils)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, bases) and value not in bases
    }
    assert every - {"_LRScheduler"} == SCHEDULERS.keys() - {"none"}
