"""Plans in ``TORCH_TRACE``, as ``tlparse`` shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import torch, shardc
model, batch = torch.nn.Linear(4, 4), (torch.randn(8, 4),)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = shardc.compile_step(
    model, optimizer, batch, loss=lambda y, _: y.square().mean(), mesh={"data": 2}, plan="zero3", fuse=False
)
print(step.plan.title())
"""


def test_tlparse_shows_the_plan(tmp_path: Path) -> None:
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path / "log")}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True)
    (log,) = (tmp_path / "log").iterdir()
    tlparse = Path(sys.executable).with_name("tlparse")
    shown = [str(tlparse), str(log), "-o", str(tmp_path / "page"), "--no-browser"]
    subprocess.run(shown, check=True, capture_output=True)
    (plan,) = (tmp_path / "page").rglob("shardc_plan_*.txt")
    text = plan.read_text()
    assert ran.stdout.decode().strip() in text and "all_gather" in text
    assert plan.name in (tmp_path / "page" / "index.html").read_text()
