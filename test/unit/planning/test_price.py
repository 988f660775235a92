"""Prices of plans: memory as the program's own, time on a cluster, what follows from both."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from planned import write_config

from shardc.compiler.memory import step_peak
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.cluster import MeshDoesNotFit
from shardc.diagnostics.planning import BadWhatIf
from shardc.planning.candidates import Candidate
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer
from shardc.planning.question import Sizes, read_config
from shardc.planning.verdict import bound, changes, ranking, verdict
from shardc.planning.what_if import read_what_if
from shardc.planning.write_json import prices_json

NODE = find_cluster("h100")
DATA = Candidate({"data": 2, "tensor": 2}, "data*tensor")
ZERO = replace(DATA, plan="zero3*tensor")
PIPELINE = Candidate({"pipe": 2, "data": 2}, "pipeline*data", 4)


@pytest.fixture(scope="module")
def pricer(tmp_path_factory: pytest.TempPathFactory) -> Pricer:
    folder = tmp_path_factory.mktemp("config")
    return Pricer(read_config(write_config(folder), Sizes(8, 32), torch.bfloat16))


@pytest.fixture(scope="module")
def price(pricer: Pricer) -> Price:
    return pricer.price(DATA).on(NODE)


@pytest.mark.slow
def test_memory_is_that_of_the_rank_program(pricer: Pricer, price: Price) -> None:
    (rank,) = price.priced.memory
    assert rank.peak_bytes == step_peak(pricer.programs.compiled(DATA).unfused).size_bytes
    assert rank.given["opt_state"] > rank.given["param"] > 0
    assert price.capacity_bytes == NODE.devices[0].memory_bytes and price.fits


def test_zero3_holds_a_part_of_the_state(pricer: Pricer, price: Price) -> None:
    (whole,), (cut,) = price.priced.memory, pricer.price(ZERO).memory
    # AdamW's steps stay whole, and are 4 bytes a parameter tensor
    assert whole.given["param"] == 2 * cut.given["param"]
    assert 0.5 <= cut.given["opt_state"] / whole.given["opt_state"] < 0.51


def test_stages_of_a_pipeline_have_memory_of_their_own(pricer: Pricer) -> None:
    priced = pricer.price(PIPELINE)
    assert [rank.rank for rank in priced.memory] == [0, 2]
    assert priced.fullest.peak_bytes == max(rank.peak_bytes for rank in priced.memory)
    assert priced.on(NODE).time.causes["bubble"] > 0


def test_utilization_is_of_the_single_devices_products(price: Price) -> None:
    flops = sum(work.flops for work in price.priced.work.single)
    assert price.flop_utilization == pytest.approx(flops / (4 * 989e12 * price.time.seconds))
    assert price.tokens_s == 8 * 32 / price.time.seconds
    assert price.energy_j == pytest.approx(4 * 700 * price.time.seconds)
    assert sum(price.time.causes.values()) == pytest.approx(price.time.seconds)


def test_a_mesh_that_the_cluster_has_not(price: Price) -> None:
    with pytest.raises(MeshDoesNotFit):
        price.priced.on(find_cluster("h100-2"))


def test_what_fits_comes_first(pricer: Pricer, price: Price) -> None:
    small = read_what_if(f"memory={price.needed_bytes - 1}").cluster(NODE)
    tight = price.priced.on(small)
    assert not tight.fits and tight.free_bytes == -1
    assert sorted([tight, price], key=lambda p: p.order)[0] is price
    text = verdict(pricer.question, tight)
    assert "does not fit" in text and "1 B too much" in text
    assert "1 of 2 plans fit" in "\n".join(ranking([tight, price]))


def test_slower_links_make_what_waits_for_them_longer(price: Price) -> None:
    slower = price.priced.on(read_what_if("links=0.01x").cluster(NODE))
    assert slower.time.seconds > price.time.seconds
    assert slower.time.causes["matmul"] == price.time.causes["matmul"]
    lines = changes(price, [("links=0.01x", slower)])
    assert "as it is" in lines[2] and "links=0.01x" in lines[3]


def test_the_bound_is_the_largest_cause(price: Price) -> None:
    largest = max(price.time.causes.values())
    assert bound(price).endswith(f"({largest / price.time.seconds:.0%})")


def test_json_has_the_figures(pricer: Pricer, price: Price) -> None:
    held = prices_json(pricer.question, [price])
    (entry,) = held["plans"]
    assert held["model"]["tokens"] == 256
    assert (
        entry["step_s"] == price.time.seconds
        and entry["memory"][0]["peak_bytes"] == price.priced.fullest.peak_bytes
    )


@pytest.mark.parametrize("text", ["links", "links=fast", "link=2x", "memory=0", "memory=-1", "batch=3x5"])
def test_changes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BadWhatIf):
        read_what_if(text)


def test_amounts_have_units() -> None:
    assert read_what_if("memory=141GB").cluster(NODE).devices[0].memory_bytes == 141e9
    assert read_what_if("memory-rate=0.5x").cluster(NODE).devices[0].memory_bytes_s == 3.35e12 / 2
    assert read_what_if("flops=2x").cluster(NODE).devices[0].peak_flop_s("bf16") == 2 * 989e12
    assert read_what_if("batch=2x").count(8) == 16
    with pytest.raises(BadWhatIf):
        read_what_if("batch=0.3x").count(8)
