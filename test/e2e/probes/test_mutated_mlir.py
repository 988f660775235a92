"""Changed MLIR ends in a result or an error in words, never in a traceback or a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutated_mlir import described, tried

SAMPLE, WHOLE = range(0, 2000, 40), range(2000)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [SAMPLE, pytest.param(WHOLE, marks=pytest.mark.slow)])
def test_mutants(numbers: range, tmp_path: Path) -> None:
    found = tried(numbers, tmp_path)
    assert not [described(n, o) for n, o in zip(numbers, found, strict=True) if o.problem]
    codes = {outcome.code for outcome in found}
    assert 2 in codes and codes - {2}  # some are refused, not all
    if numbers is WHOLE:
        assert codes == {0, 1, 2}
