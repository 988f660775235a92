"""Tests on a real GPU of the files of `prepare.py`; each is skipped with a reason if that is impossible."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


def _why_not() -> str | None:
    try:
        import triton
    except ImportError as error:
        return f"Triton does not import: {error}"
    import prepared

    if not prepared.interprets() and not torch.cuda.is_available():
        return f"no GPU: torch {torch.__version__} sees none (Triton {triton.__version__})"
    if not (prepared.folder() / "prepared.json").is_file():
        return (
            f"nothing was prepared in {prepared.folder()}: run test/gpu/prepare.py where shardc is installed"
        )
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = _why_not()
    for item in items:
        if why is not None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def gpu() -> torch.device:
    """A real one."""
    import prepared

    if prepared.interprets():
        pytest.skip("needs a GPU: this is Triton's interpreter")
    return prepared.device()
