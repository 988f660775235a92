"""``plan="auto"`` without a mesh: for a cluster, for the running processes, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.commands.compile import search_and_compile
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.cluster import BadClusterSize
from shardc.diagnostics.passes.search import NothingToSearchFor, NotSearched
from shardc.options.parallelism import Parallelism, lacks_mesh
from shardc.step.compile_step import CompiledStep


class Tower(nn.Module):
    """Equal layers behind an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


class Pictures(nn.Module):
    """Convolutions before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.mean((2, 3))).square().mean()


BATCHES = {Tower: lambda: torch.randint(0, 32, (8, 6)), Pictures: lambda: torch.randn(8, 3, 8, 8)}


def compiled(kind: type[nn.Module] = Tower, **options: object) -> CompiledStep:
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    chosen: dict[str, object] = {"plan": "auto", "fuse": False, **options}
    return shardc.compile_step(model, optimizer, (BATCHES[kind](),), **chosen)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", BATCHES)
def test_the_step_of_a_cluster_is_that_of_one_device(kind: type[nn.Module]) -> None:
    step = compiled(kind, cluster="h100-2x2")
    assert step.compiled.mesh.world_size == 4
    text = str(step.plan)
    assert "searched: " in text
    assert "by the search's count no plan takes less than" in text
    assert "plan  " in text
    assert step.check().passed


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, as if it had been measured."""
    from shardc.compiler import local_cluster
    from shardc.cost.cluster.local import Figures

    figures = Figures(8e9, 1e11, 1e11, 1e10, 1e-6, 1e-5, 2e-5, 1e9)
    monkeypatch.setattr(local_cluster, "figures", lambda: figures)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("world", [1, 3])
def test_processes_that_run_are_the_cluster(
    world: int, measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    step = compiled()
    assert step.compiled.mesh.world_size == world
    assert step.compiled.cluster is not None and step.compiled.cluster.name == f"local-{world}"
    assert step.check().passed


@pytest.mark.slow
def test_of_a_cluster_as_many_devices_as_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    step = compiled(cluster="h100-2x2")
    assert step.compiled.cluster is not None and step.compiled.cluster.name == "h100-2x1"
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(BadClusterSize, match=r"3 of h100-2x2.*do not fill whole groups"):
        compiled(cluster="h100-2x2")


def test_neither_mesh_nor_cluster_nor_processes() -> None:
    with pytest.raises(NothingToSearchFor, match=r"(?s)neither a mesh nor a cluster.*cluster='h100-8x8'"):
        compiled()


@pytest.mark.parametrize(
    "options", [{"constraints": {"layers.1": ["data", None]}}, {"per_micro_batch": True, "micro_batches": 2}]
)
def test_what_needs_a_mesh_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(NotSearched, match=f"does not support {next(iter(options))} without a mesh"):
        compiled(cluster="h100-2x2", **options)


def test_wrong_arguments_are_named_first() -> None:
    with pytest.raises(BadArgument, match="model is"):
        shardc.compile_step(3, None, (), plan="auto")  # pyright: ignore[reportArgumentType]


def test_where_a_mesh_lacks() -> None:
    assert lacks_mesh({"plan": "auto"})
    assert lacks_mesh({"parallelism": {"plan": "auto"}})
    assert not lacks_mesh({"plan": "auto", "mesh": {"data": 2}})
    assert not lacks_mesh({"parallelism": Parallelism({"data": 2}, "auto")})
    assert not lacks_mesh({"plan": "data"})
    assert not lacks_mesh({})


@pytest.mark.slow
def test_parts_of_the_choice_are_fixed() -> None:
    step = compiled(cluster="h100-2x2", micro_batches=2, parallelism={"recompute": "none"})
    assert [axis.size for axis in step.compiled.mesh.axes if axis.kind == "time"] == [2]


def test_a_folder_of_a_searched_plan(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "def build():\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))\n"
        "    batch = (torch.randn(8, 8),)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    return model, optimizer, batch, lambda out, _: out.square().mean()\n"
    )
    report = search_and_compile(
        script, tmp_path / "out", {"plan": "auto", "cluster": "h100-2", "fuse": False}
    )
    assert report.devices == 2
    assert "searched: " in report.render()
    assert (tmp_path / "out" / "program.py").is_file()


def test_first_devices_of_a_cluster() -> None:
    cluster = find_cluster("h100-8x4")
    assert cluster.shrunk(24) == find_cluster("h100-8x3")
    assert cluster.shrunk(6) == find_cluster("h100-6x1")
    for devices, problem in ((12, "do not fill whole groups"), (40, "it has 32")):
        with pytest.raises(BadClusterSize, match=problem):
            cluster.shrunk(devices)
