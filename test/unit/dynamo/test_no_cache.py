"""An unwritable cache folder: everything works, nothing is kept, and one warning is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
eager = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
compiled = torch.compile(eager, backend="shardc")
x = torch.randn(16, 32)
gradients = []
for model in (eager, compiled):
    eager.zero_grad()
    model(x).square().mean().backward()
    gradients.append([p.grad.clone() for p in eager.parameters()])
torch.testing.assert_close(*gradients)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), eager(x))
print("equal")
"""


@pytest.mark.slow
def test_a_whole_compile_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        env={**os.environ, "SHARDC_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.split() == ["equal"], done.stderr
    assert done.stderr.count("SHARDC_CACHE_DIR") == 1 and str(folder) in done.stderr, done.stderr
    assert "Fallback" not in done.stderr and "Traceback" not in done.stderr, done.stderr
