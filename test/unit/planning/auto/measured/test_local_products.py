"""Local products are measured before a search on this machine, and their times decide between shardings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace
from pathlib import Path

import pytest
import torch
from torch import nn

import shardc
from shardc.compiler import local_cluster
from shardc.compiler.profiling import products as measuring
from shardc.compiler.profiling.products import measured_products
from shardc.cost import ops
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.local import Figures
from shardc.cost.cluster.names import find_cluster
from shardc.cost.ops import DeviceRates, Product
from shardc.planning.auto.measured import local_products as under_test
from shardc.planning.auto.measured.local_products import local_products
from shardc.planning.candidates import Candidate
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question
from shardc.planning.what_if import read_what_if

FIGURES = Figures(8e9, 1e11, 1e11, 1e10, 1e-6, 1e-5, 2e-5, 1e9)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, as if it had been measured, with caches and a tuning database of the test's own."""
    monkeypatch.setattr(local_cluster, "figures", lambda: FIGURES)
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuned.sqlite"))


def question(rows: int = 32) -> Question:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 24))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return Question("mlp", model, optimizer, (torch.randn(rows, 16),), lambda y, _: y.square().mean())


def test_all_products_that_a_search_costs_were_measured(
    machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, real = set[Product](), ops.product_s

    def noted(product: Product, rates: DeviceRates) -> float:
        assert rates.measured is not None
        asked.update({product} if rates.measured.seconds(product) is None else ())
        return real(product, rates)

    monkeypatch.setattr("shardc.passes.search.work.product_s", noted)
    q = question()
    found = shardc.search_plan(q.model, q.optimizer, q.batch, loss=q.loss, cluster="local-4")
    assert found.searches.cluster.devices[0].products
    assert not asked


def test_processes_of_a_machine_read_one_measurement(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()

    def measured(shapes: list[Product]) -> Mapping[Product, float]:
        calls.append(len(shapes))
        return {shape: 1e-3 * len(calls) for shape in shapes}

    monkeypatch.setattr(under_test, "measured_products", measured)
    program, cluster = (
        Pricer(question()).program(Candidate({"data": 1}, "auto")),
        local_cluster.cluster_of("local-2"),
    )
    first, second = (under_test.with_local_products(cluster, program, 32, [1, 2]) for _ in range(2))
    assert first == second
    assert len(calls) == 1
    assert len(first.devices[0].products) == calls[0]
    assert {row[-1] for row in first.devices[0].products} == {2e-3}, "two processes share one core"


def test_measurements_are_kept_in_the_tuning_database(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [Product(1, 8, 8, 8, 4), Product(2, 4, 8, 8, 2), Product(1, 8, 8, 8, 1)]
    first = measured_products(shapes)
    assert list(first) == shapes[:2], "products of 1-byte elements have no dtype here"
    assert all(seconds > 0 for seconds in first.values())
    monkeypatch.setattr(measuring, "_seconds", lambda product: pytest.fail("measured again"))
    assert measured_products(shapes) == first
    monkeypatch.setattr(measuring, "LIMIT_S", 0.0)
    assert measured_products([*shapes, Product(1, 3, 3, 3, 4)]) == first


def test_dims_are_split_over_all_devices_or_fewer() -> None:
    found = set(local_products([Product(1, 8, 6, 5, 4)], 4, 8, [1, 2]))
    assert Product(1, 2, 6, 5, 4) in found and Product(1, 4, 3, 5, 4) in found
    assert Product(1, 4, 6, 5, 4) in found and Product(1, 1, 6, 5, 4) in found, "of two micro-batches"
    assert not any(p.k < 5 for p in found), "5 is odd"
    assert {(p.m, p.n) for p in found} == {(1, 6), (2, 3), (2, 6), (4, 3), (4, 6), (8, 3), (8, 6)}


def test_a_sharding_that_leaves_slow_products_loses() -> None:
    q, cluster, candidate = question(rows=512), find_cluster("cpu-2"), Candidate({"memory": 2}, "auto")
    (device,) = cluster.devices
    products = under_test.products_of(Pricer(q).program(candidate))
    shapes = dict.fromkeys(local_products(products, 2, 512, [1]))

    def on(slow: int) -> Cluster:
        """The cluster with products of a size that take a hundred times as long as others."""
        rows = [(*astuple(p), 1e-7 * p.flops * (100 if slow in (p.m, p.n, p.k) else 1)) for p in shapes]
        return replace(cluster, devices=(replace(device, products=tuple(rows)),))

    even, uneven = on(slow=0), on(slow=32)
    first, joint = (Pricer(q, cluster=of).price(candidate).on(uneven).time.seconds for of in (even, uneven))
    assert joint < 0.5 * first, "features are not split if products of half of them are slow"


def test_what_was_measured_at_other_rates_is_left_out() -> None:
    (device,) = find_cluster("cpu-2").devices
    cluster = replace(find_cluster("cpu-2"), devices=(replace(device, products=((1, 2, 2, 2, 4, 1e-6),)),))
    for text in ("flops=2x", "memory-rate=2x"):
        assert not read_what_if(text).cluster(cluster).devices[0].products
    assert read_what_if("memory=2x").cluster(cluster).devices[0].products
