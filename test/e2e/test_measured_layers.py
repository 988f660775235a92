"""The search of ``test/bench/peers`` on small made profiles: equal to exhaustive search, and never below its
bounds.
"""

import itertools
import json
import math
import random
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "bench" / "peers"))
from chain_costs import step_s
from layer_times import Costs, Profile, profile_of
from ours import Case, Search, as_sailor

MODEL, GPU, ZONE, NODE = "small", "gpu", "zone", 2


def _made(folder: Path, seed: int) -> Profile:
    """Write a profile in Sailor's form, with random numbers, and read it."""
    of, layers = random.Random(seed), random.Random(seed).randint(2, 5)
    rate = {
        str(n): {ZONE: {GPU: {str(m): [[of.uniform(0, 0.1), 2.0 * min(n, m)]] for m in (1, 2)}}}
        for n in (1, 2)
    }
    times = {
        str(batch): {
            str(degree): {
                str(n): [time * batch / degree**0.8 for time in (of.uniform(0.5, 2), of.uniform(1, 3), 0.1)]
                for n in range(layers)
            }
            for degree in (1, 2)
            if (batch, degree) != (2, 1) or seed % 3
        }
        for batch in (1, 2)
    }
    parameters = [of.uniform(1, 4) * 10 ** of.choice((7, 8)) for _ in range(layers)]
    sizes = {
        str(degree): {
            str(n): {
                "params_floats": parameters[n] / degree,
                "act_mem_floats": of.uniform(1, 4) * 1e8 / degree,
                "act_output_floats": of.uniform(1, 8) * 1e6,
            }
            for n in range(layers)
        }
        for degree in (1, 2)
    }
    memory = of.choice((8e9, 20e9, 60e9))
    cluster = {"zone": ZONE, GPU: {"gpus_per_node": NODE, "mem_per_gpu": memory}}
    files = {
        "Planner/simulations/profiles_tmp.json": {MODEL: {GPU: times}},
        "Planner/llm_info.json": {MODEL: sizes},
        "Planner/simulations/configs/basic_cluster_config.json": cluster,
        "providers/multizone_bandwidths_het.json": {ZONE: {GPU: rate}},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return profile_of(folder / "Planner", MODEL, GPU)


def _all(profile: Profile, case: Case, is_even: bool) -> Iterator[tuple[int, int, float]]:
    """Yield (stages, micro-batches, seconds) of every plan that fits."""
    devices, layers = case.devices, profile.count
    for stages, data in itertools.product(range(1, min(devices, layers) + 1), range(1, devices + 1)):
        for size, rows in profile.busy_s.items():
            if is_even and case.batch % (size * data):
                continue
            degrees, count = sorted(rows), math.ceil(case.batch / (size * data))
            costs = Costs(profile, stages, data, size, degrees, devices // data)
            for inner in itertools.combinations(range(1, layers), stages - 1):
                ends, starts = (*inner, layers), (0, *inner)
                for kinds in itertools.product(range(len(degrees)), repeat=stages):
                    used = sum(degrees[kind] for kind in kinds) * data
                    if used > devices or (is_even and (len(set(kinds)) > 1 or used < devices)):
                        continue
                    placed = enumerate(zip(starts, ends, kinds, strict=True))
                    if all(costs.fits(place, *stage) for place, stage in placed):
                        yield stages, count, step_s(costs, count, ends, kinds)


@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_the_search_equals_exhaustive_search(tmp_path: Path, seed: int, is_even: bool) -> None:
    profile = _made(tmp_path, seed)
    case = Case(2 + 2 * (seed % 3), NODE, 4 + 2 * (seed % 2))
    plans = list(_all(profile, case, is_even))
    search = Search(profile, case, is_even)
    around, plan = search.run()
    if not plans:
        assert plan is None
        return
    least = min(seconds for *_, seconds in plans)
    assert plan is not None
    assert plan.seconds == pytest.approx(least, rel=1e-12)
    assert around.bound_s == pytest.approx(least, rel=1e-12)
    for stages, count, seconds in plans:
        bounds = [s for c, s in search.least.items() if (c.stages, c.micro_batches) == (stages, count)]
        assert min(bounds, default=inf) <= seconds * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(1, 20))
def test_a_search_that_starts_from_a_plan_finds_the_same(tmp_path: Path, seed: int) -> None:
    profile, case = _made(tmp_path, seed), Case(6, NODE, 6)
    even = Search(profile, case).run()[1]
    found, started = (Search(profile, case, is_even=False).run(known)[1] for known in (None, even))
    assert (found is None) == (started is None)
    if found is not None:
        assert found.seconds == started.seconds
        assert even is None or started.seconds <= even.seconds


def test_a_plan_in_sailors_form_has_all_layers_and_devices(tmp_path: Path) -> None:
    profile, case = _made(tmp_path, 1), Case(4, NODE, 4)
    plan = Search(profile, case).run()[1]
    assert plan is not None
    (pipeline,) = as_sailor(plan, GPU, ZONE)["pipeline_list"]
    assert list(itertools.chain(*pipeline["layers_per_stage"])) == list(range(profile.count))
    groups = [group for stage in pipeline["tmp_per_stage"] for group in stage]
    assert sum(degree for _, degree in groups) == case.devices
    assert [len(stage) for stage in pipeline["tmp_per_stage"]] == pipeline["dp"]
