"""A few ops of ``op_db``, others every day: none may be wrong, raise, crash or hang.
``test/zoo/op_db.md`` has them all.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

WALK = Path(__file__).parents[2] / "zoo" / "op_db.py"
OPS = 25


@pytest.mark.slow
def test_todays_ops_are_not_wrong() -> None:
    seed = f"{datetime.now(UTC):%Y%m%d}"
    command = [sys.executable, str(WALK), "--sample", str(OPS), "--seed", seed, "--samples", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    print(done.stdout)  # its first line has the seed and the ops
    assert done.returncode == 0, f"again with: {' '.join(command)}\n{done.stdout}\n{done.stderr[-3000:]}"
    assert f"{OPS} ops in" in done.stdout and "'compiled'" in done.stdout
