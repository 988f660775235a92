"""Runs the tests of a GPU on what `prepare.py` made: ``python test/gpu/run.py out/gpu [arguments of pytest]``.

Needs torch, Triton and pytest, and this checkout; neither shardc's dependencies nor Torch-MLIR.
"""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def main(folder: str, *more: str) -> int:
    os.environ["SHARDC_GPU_FOLDER"] = str(Path(folder).resolve())
    own = ["-q", "-rs", "--import-mode=importlib", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={HERE}"]
    return int(pytest.main([*own, *more, str(HERE)]))


if __name__ == "__main__":
    raise SystemExit(main(*(sys.argv[1:] or ["out/gpu"])))
