"""torchtitan's Llama 3 with torchtitan's degrees and shardings, against the same model in eager."""

from __future__ import annotations

import json

import pytest

NEEDS = "needs torchtitan: pip install --no-deps -r requirements-torchtitan.lock"
pytest.importorskip("torchtitan.models.llama3", reason=NEEDS, exc_type=ImportError)


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "degrees"), [(2, {"dp_shard": 2}), (4, {"dp_shard": 2, "tp": 2})])
def test_training_is_that_of_one_device(processes: int, degrees: dict[str, int], trained) -> None:
    plain = trained("torchtitan_worker.py", 1, "null")
    sharded = trained("torchtitan_worker.py", processes, json.dumps(degrees))
    assert plain.keys() == sharded.keys() and len(plain["losses"]) == 4
    assert plain["losses"][-1] != pytest.approx(plain["losses"][0], rel=1e-3)
    for name, values in plain.items():
        assert sharded[name] == pytest.approx(values, rel=2e-4, abs=2e-5), name
