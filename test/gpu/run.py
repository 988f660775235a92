"""Runner of a GPU's tests on the files of `prepare.py`; writes a dated table in Markdown.

    python test/gpu/run.py out/gpu [--out table.md] [--minutes 9] [arguments of pytest]

Needs torch, Triton and pytest, and this checkout; neither shardc's dependencies nor Torch-MLIR. A test that
fails stands in the table with the first line of its error, and the next one runs; those that the minutes do
not suffice for are skipped. After an error of the device, which lasts for as long as its process, another
process runs the rest.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from pathlib import Path

import pytest
import torch
import triton

HERE = Path(__file__).resolve().parent
LOST = ("CUDA error", "Triton Error [CUDA]")
"""What errors say after which a process can do nothing more on its GPU."""


class Table:
    """A line for each test, written when it is known."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.end_s = path, time.monotonic() + 60 * minutes
        self.done: list[str] = []
        """Tests that have run."""
        self.is_lost = False
        """Whether the device is, and tests are left out."""

    def begin(self) -> None:
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        head = f"# Tests on {name}, {datetime.date.today().isoformat()}"
        versions = f"torch {torch.__version__}, triton {triton.__version__}."
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(
            f"{head}\n\n{versions}\n\n| test | result | seconds | why |\n|---|---|--:|---|\n"
        )

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() > self.end_s:
            pytest.skip("out of time: give it more --minutes, or name fewer tests with -k")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        why = ""
        if not report.passed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            text = crash.message if crash else said
            why = str(text).strip().partition("\n")[0].replace("|", "/")
            if report.failed and any(sign in why for sign in LOST):
                self.is_lost, self._session.shouldstop = True, "the device is lost"
        self.done.append(report.nodeid)
        with self.path.open("a") as file:
            file.write(f"| {report.nodeid} | {report.outcome} | {report.duration:.1f} | {why} |\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path("out/gpu"))
    parser.add_argument("--out", type=Path, help="the table: FOLDER/tests.md unless said otherwise")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--goes-on", action="store_true", help=argparse.SUPPRESS)
    options, more = parser.parse_known_args()
    os.environ["SHARDC_GPU_FOLDER"] = str(options.folder.resolve())
    table = Table(options.out or options.folder / "tests.md", options.minutes)
    if not options.goes_on:
        table.begin()
    own = [
        "-q",
        "-rs",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={HERE}",
    ]
    code = int(pytest.main([*own, *more, str(HERE)], [table]))
    if table.is_lost:
        rest = [
            f"--minutes={(table.end_s - time.monotonic()) / 60}",
            *(f"--deselect={name}" for name in table.done),
        ]
        command = [
            sys.executable,
            __file__,
            str(options.folder),
            f"--out={table.path}",
            "--goes-on",
            *rest,
            *more,
        ]
        sys.stdout.flush()
        os.execv(sys.executable, command)
    print(table.path.read_text())
    return 1 if options.goes_on else code


if __name__ == "__main__":
    raise SystemExit(main())
