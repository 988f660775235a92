"""Optimizer state in host memory: saved device memory, and the time of copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from planned import write_config
from torch import nn

import shardc
from shardc.backends.torch.memory.dry_run import Peak
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.planning import NoHostMemory, OffloadNotYet
from shardc.planning.candidates import Candidate
from shardc.planning.offload import OFFLOAD
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Sizes, read_config
from shardc.planning.verdict import verdict

NODE = find_cluster("h100")
DATA = Candidate({"data": 2}, "data")


@pytest.fixture(scope="module")
def pricer(tmp_path_factory: pytest.TempPathFactory) -> Pricer:
    return Pricer(read_config(write_config(tmp_path_factory.mktemp("config")), Sizes(8, 32), torch.bfloat16))


@pytest.fixture(scope="module")
def kept(pricer: Pricer) -> Price:
    return pricer.price(DATA).on(NODE)


@pytest.fixture(scope="module")
def moved(pricer: Pricer) -> Price:
    return pricer.price(DATA, offload="optimizer").on(NODE)


@pytest.mark.slow
def test_the_state_but_that_of_two_parameters_is_on_the_host(kept: Price, moved: Price) -> None:
    (before,), (after,) = kept.priced.memory, moved.priced.memory
    state, there = before.given["opt_state"], after.given["opt_state"]
    assert after.host_bytes == state
    assert there == 2 * before.largest_state_bytes
    assert before.peak_bytes - after.peak_bytes == state - there > 0
    assert isinstance(after.peak, Peak)
    assert max(moment.size_bytes for moment in after.peak.curve.moments) == after.peak_bytes


def test_copies_take_as_long_as_the_link_does(kept: Price, moved: Price) -> None:
    assert NODE.host is not None
    copies_s = kept.priced.fullest.given["opt_state"] / NODE.host.bytes_s + 2 * NODE.host.latency_s
    assert moved.time.causes[OFFLOAD] == copies_s
    assert moved.time.seconds == pytest.approx(kept.time.seconds + copies_s)
    assert sum(moved.time.causes.values()) == pytest.approx(moved.time.seconds)


def test_a_host_that_is_too_small(moved: Price) -> None:
    assert NODE.host is not None
    small = replace(NODE, host=replace(NODE.host, memory_bytes=moved.priced.fullest.host_bytes - 1e3))
    price = moved.priced.on(small)
    assert not price.fits
    assert price.host_lacking_bytes == 1e3


def test_a_cluster_without_hosts_is_refused(moved: Price) -> None:
    with pytest.raises(NoHostMemory, match="cluster h100 describes no host memory"):
        moved.priced.on(replace(NODE, host=None))


def test_no_step_runs_so_yet() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(OffloadNotYet, match="shardc plan --offload optimizer"):
        shardc.compile_step(
            model, optimizer, torch.ones(2, 4), loss=lambda out, _: out.sum(), offload="optimizer"
        )


def test_the_verdict_says_what_lacks(pricer: Pricer, moved: Price) -> None:
    assert NODE.host is not None
    small = replace(NODE, host=replace(NODE.host, memory_bytes=1e3))
    text = verdict(pricer.question, moved.priced.on(small))
    assert "does not fit: the host's memory lacks" in text
