"""Programs for the oracle, written as MLIR text."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from torch_mlir import ir

from shardc.dialects.context import new_context

Parse = Callable[[str], ir.Module]


@pytest.fixture(scope="session")
def parse() -> Parse:
    """MLIR text to a verified module."""
    context = new_context()
    return lambda text: ir.Module.parse(text, context)


@pytest.fixture(scope="session")
def two_layer() -> ModuleType:
    """The design example, ``two_layer.py``. Loaded by path: in pytest's importlib mode test folders are no
    packages.
    """
    path = Path(__file__).with_name("two_layer.py")
    spec = importlib.util.spec_from_file_location("two_layer", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
