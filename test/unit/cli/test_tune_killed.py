"""``shardc tune`` is killed in the middle of a search, and started again: nothing is lost or
measured anew.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardc.cli import main

SCRIPT = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(32, 64),), lambda out, batch: out.pow(2).mean()
"""  # noqa: E501
LIMIT_S = 300


def recorded(database: Path) -> int:
    if not database.exists():
        return 0
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT count(*) FROM trials").fetchone()[0]
    except sqlite3.OperationalError:  # its tables are not made yet
        return 0
    finally:
        connection.close()


@pytest.mark.slow
def test_a_session_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    database, script = tmp_path / "tuning.db", tmp_path / "train.py"
    script.write_text(SCRIPT)
    monkeypatch.setenv("SHARDC_TUNING_DB", str(database))
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    arguments = ["tune", str(script), "--matmuls", "extern", "--trials", "40", "--regret", "0"]
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shardc.cli import main; sys.exit(main({arguments!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end_s = time.monotonic() + LIMIT_S
    while recorded(database) < 8 and process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    found = recorded(database)
    assert found >= 8
    assert main(arguments) == 0
    said = capsys.readouterr().out
    trials, known = map(
        int, re.search(r"(\d+) trials in \d+ s, (\d+) of which were in the database", said).groups()
    )
    assert known == found and trials > found
    repeated = "SELECT count(*) FROM trials GROUP BY task, sketch, point HAVING count(*) > 1"
    kernels = sqlite3.connect(database).execute("SELECT count(*) FROM tasks").fetchone()[0]
    # Each session may confirm a kernel's best.
    assert len(sqlite3.connect(database).execute(repeated).fetchall()) <= 2 * kernels
