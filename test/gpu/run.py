"""Runs the tests of a GPU on what `prepare.py` made, and writes a dated table of them in Markdown.

    python test/gpu/run.py out/gpu [--out table.md] [--minutes 9] [arguments of pytest]

Needs torch, Triton and pytest, and this checkout; neither shardc's dependencies nor Torch-MLIR. A test that fails stands
in the table with the first line of its error, and the next one runs; those that the minutes do not suffice for are
skipped.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from pathlib import Path

import pytest
import torch
import triton

HERE = Path(__file__).resolve().parent


class Table:
    """A line for each test, written when it is known."""

    def __init__(self, path: Path, minutes: float) -> None:
        self._path, self._end_s = path, time.monotonic() + 60 * minutes
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        head = f"# Tests on {name}, {datetime.date.today().isoformat()}"
        versions = f"torch {torch.__version__}, triton {triton.__version__}."
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}\n\n{versions}\n\n| test | result | seconds | why |\n|---|---|--:|---|\n")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() > self._end_s:
            pytest.skip("out of time: give it more --minutes, or name fewer tests with -k")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        why = ""
        if not report.passed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else report.longrepr[2] if report.skipped else report.longreprtext
            why = str(text).strip().partition("\n")[0].replace("|", "/")
        with self._path.open("a") as file:
            file.write(f"| {report.nodeid} | {report.outcome} | {report.duration:.1f} | {why} |\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("out/gpu"))
    parser.add_argument("--out", type=Path, help="the table: FOLDER/tests.md unless said otherwise")
    parser.add_argument("--minutes", type=float, default=9)
    options, more = parser.parse_known_args()
    os.environ["SHARDC_GPU_FOLDER"] = str(options.folder.resolve())
    table = options.out or options.folder / "tests.md"
    own = ["-q", "-rs", "--import-mode=importlib", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={HERE}"]
    code = int(pytest.main([*own, *more, str(HERE)], [Table(table, options.minutes)]))
    print(table.read_text())
    return code


if __name__ == "__main__":
    raise SystemExit(main())
