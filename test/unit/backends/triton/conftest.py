"""Tests of the Triton backend, without a GPU: kernels run in Triton's interpreter, and are compiled ahead of
time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from shardc.backends.triton.interpreter.interpret import Interpreter

from .programs import run_in_interpreter

UNIT = Path(__file__).parents[2]
sys.path += [str(UNIT / name) for name in ("passes/fuse", "dynamo")]
sys.path.append(str(UNIT.parent / "bench"))

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers in every run."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    """One process for all tests: starting it takes seconds."""
    with Interpreter() as found:
        yield found


@pytest.fixture
def check(interpreter: Interpreter) -> Callable[..., None]:
    """``check(f, *tensors)``: f as Triton kernels in the interpreter, against eager in f64."""
    return lambda f, *tensors: run_in_interpreter(interpreter, f, *tensors)
