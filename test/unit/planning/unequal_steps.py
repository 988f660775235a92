"""Clusters of two kinds of device, and training steps for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device
from shardc.cost.cluster.level import Level
from shardc.cost.cluster.mapping import Placement
from shardc.diagnostics.passes.shares import ShareWithoutRows
from shardc.options.shares import shares_by_speed
from shardc.planning.auto.search import SearchedPlan, search_plan
from shardc.planning.candidates import Candidate, meshes_of, plans_of
from shardc.planning.price import Price
from shardc.planning.pricer import Pricer

NODE_BYTES_S, ADAPTER_BYTES_S = 300e9, 25e9


def mixed(
    fast: int,
    slow: int,
    ways: int = 1,
    *,
    link_bytes_s: float = ADAPTER_BYTES_S,
    slow_bytes: float = 80e9,
    archs: tuple[str, str] = ("sm_90", "sm_80"),
) -> Cluster:
    """So many fast and slow nodes of ``ways`` devices each."""
    inside = Level("nvlink", ways, NODE_BYTES_S, 4e-6, topology="switch", efficiency=0.8)
    across = Level("net", fast + slow, link_bytes_s, 1e-5, topology="switch", efficiency=0.8)
    kinds = [
        Device("fast", 80e9, arch=archs[0], count=fast * ways),
        Device("slow", slow_bytes, arch=archs[1], count=slow * ways),
    ]
    levels = (inside, across) if ways > 1 else (across,)
    return Cluster(f"{fast}+{slow} x {ways}", tuple(kinds), levels, Library("nccl", 4e-5))


class Net(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def loss(output: Tensor, _: object) -> Tensor:
    return output.float().square().mean()


def searched(cluster: Cluster, width: int, depth: int, rows: int, length: int = 512) -> SearchedPlan:
    """Search a plan in bf16, without weights."""
    with torch.device("meta"):
        model = Net(width, depth).to(torch.bfloat16)
        batch = (torch.empty(rows, length, width, dtype=torch.bfloat16),)
    optimizer = torch.optim.AdamW(model.parameters())
    return search_plan(model, optimizer, batch, cluster=cluster, loss=loss)


def presets(
    pricer: Pricer, cluster: Cluster, is_tried: Callable[[Mapping[str, int]], bool] = lambda _: True
) -> Iterator[Price]:
    """Yield the prices of all plans that ``shardc plan`` knows, with and without shares and speeds.

    ``is_tried``: whether to try a mesh.
    """
    question = pricer.question
    node = cluster.levels[0].ways if len(cluster.levels) > 1 else cluster.size
    meshes = meshes_of(cluster.size, node, question.samples, question.layers)
    for mesh in filter(is_tried, meshes):
        for candidate in plans_of(mesh, question.samples):
            yield pricer.price(candidate).on(cluster)
            for unequal in _unequal(candidate, cluster):
                with suppress(ShareWithoutRows):
                    yield pricer.price(unequal).on(cluster)


def _unequal(candidate: Candidate, cluster: Cluster) -> Iterator[Candidate]:
    axis = next((axis for axis in ("pipe", "data") if axis in candidate.mesh), "")
    kinds = Placement.of(cluster, candidate.mesh).slowest_along(axis) if axis else []
    speeds = [kind.peak_flop_s("bf16") for kind in kinds]
    if len(set(kinds)) > 1 and axis == "pipe":
        yield replace(candidate, speeds=tuple(speed / min(speeds) for speed in speeds))
    elif len(set(kinds)) > 1:
        yield replace(candidate, shares={axis: shares_by_speed(speeds)})
