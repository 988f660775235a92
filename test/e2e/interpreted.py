"""Artefacts for a GPU that is not here: trained on this CPU in Triton's interpreter, and compared with eager
training.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

STEPS = 2
RUN = f"""
import os
import sys
import torch
from shardc.backends.triton.interpreter.interpret_worker import patch
from shardc.runtime import TrainStep

step = TrainStep.load(sys.argv[1], device="cpu")
batch = torch.load(sys.argv[2])
with patch():
    losses = [step(batch) for _ in range({STEPS})]
if os.environ.get("RANK", "0") == "0":
    torch.save(losses, sys.argv[3])
"""
Trained = tuple[nn.Module, torch.optim.Optimizer, Mapping[str, Tensor]]


def check_training(
    training: Callable[[], Trained], out: Path, rtol: float = 1e-4, atol: float = 1e-5, ranks: int = 1
) -> None:
    """The artefact in ``out``, which was compiled of ``training()``, must make the losses of eager steps,
    which differ: in as many processes as it has ranks, over Gloo where these are several.
    """
    _, _, batch = training()
    files = [out.with_suffix(".batch.pt"), out.with_suffix(".losses.pt")]
    torch.save(dict(batch), files[0])
    script = out.with_suffix(".run.py")
    script.write_text(RUN)
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    )
    command = [sys.executable, *launcher, str(script), str(out), *map(str, files)]
    subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, check=True, timeout=300)
    expected = eager_losses(training)
    found = torch.stack([loss.reshape(()) for loss in torch.load(files[1])])
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
    assert abs(expected[0] - expected[1]) > 4 * atol


def eager_losses(training: Callable[[], Trained]) -> Tensor:
    """Of each of STEPS steps."""
    model, optimizer, batch = training()
    losses = []
    for _ in range(STEPS):
        loss = model(**batch)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses)
