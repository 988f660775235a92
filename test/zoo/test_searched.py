"""Searched plans of some models of the zoo, others each day: on devices so slow that all calls are sharded.

On 30 November 2026 a walk of 57 models without a mesh, and of 50 as pipelines, drawn at random, found three
faults, which are mended. All others were equal, but for five models that a pipeline refuses (SeveralLoops).
"""

from __future__ import annotations

import warnings

import pytest
from subjects import SUBJECTS
from trial import sgd

import shardc
from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device, Peaks
from shardc.cost.cluster.level import Level
from shardc.diagnostics.passes.pipeline import NoMicroBatches, SeveralLoops

SLOW = Cluster(
    "slow",
    (Device("chip", 1e11, flop_s=Peaks(f32=1e9, bf16=1e9), memory_bytes_s=2e9, launch_s=1e-7),),
    (Level("near", 2, 4e10, 1e-7, "switch"), Level("far", 2, 1e10, 3e-7, "switch")),
    Library("nccl", 1e-7),
)
STAGES = {"mesh": {"pipe": 2, "near": 2}, "plan": "pipeline*auto", "micro_batches": 2}


def searched(name: str, **options: object) -> shardc.CompiledStep:
    subject = SUBJECTS[name]
    model = subject.fresh()
    (batch,) = subject.batches(model, 1)
    given = {"plan": "auto", "cluster": SLOW, "fuse": False, "search_seconds": 40.0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers, on tiny configurations
        return shardc.compile_step(model, sgd(model), batch, loss=subject.loss, **given)


@pytest.mark.slow
@pytest.mark.daily
def test_a_plan_without_a_mesh_equals_one_device(zoo_searched: str) -> None:
    step = searched(zoo_searched)
    assert step.compiled.work.share < 0.6, "devices share the work"
    proof = step.check()
    assert proof.passed, str(proof)


@pytest.mark.slow
@pytest.mark.daily
def test_a_searched_pipeline_equals_one_device(zoo_searched: str) -> None:
    try:
        step = searched(zoo_searched, **STAGES)
    except (NoMicroBatches, SeveralLoops) as error:
        pytest.skip(f"no pipeline: {next(iter(str(error).splitlines()))}")
    proof = step.check()
    assert proof.passed, str(proof)
