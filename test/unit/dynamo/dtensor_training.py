"""Two processes over Gloo train a model on DTensor parameters, compiled and eagerly, and compare: run by
test_dtensor.py.

    python dtensor_training.py (tensor | cut) NEW_FILE
"""

from __future__ import annotations

import copy
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.dynamo import program as graph_program

RANKS = 2


def process(rank: int, kind: str, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    x = distributed(model, torch.randn(6, 4), kind, init_device_mesh("cpu", (RANKS,)))
    twin = copy.deepcopy(model)
    programs = []
    load = graph_program.load
    graph_program.load = lambda text, *more: programs.append(text) or load(text, *more)  # type: ignore[func-returns-value]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = train(torch.compile(model, backend="shardc"), model, x)
    expected = train(twin, twin, x)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert found[2] < found[0], "it does not learn"
    said = [
        str(w.message).partition("\n")[0] for w in caught if issubclass(w.category, ShardcFallbackWarning)
    ]
    assert programs or said, "the backend never saw a graph"
    if rank == 0:
        print(f"programs: {len(programs)}", *said, sep="\n")
    dist.destroy_process_group()


def distributed(model: nn.Sequential, x: torch.Tensor, kind: str, mesh: DeviceMesh) -> torch.Tensor:
    """Puts the model's parameters on the mesh, and returns the input as the model then takes it."""
    if kind == "tensor":
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return x
    for module in (model[0], model[2]):
        for name, parameter in list(module.named_parameters()):
            module.register_parameter(name, nn.Parameter(distribute_tensor(parameter.data, mesh, [Shard(0)])))
    return distribute_tensor(x, mesh, [Replicate()])


def train(run: nn.Module, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The losses of three steps, then the parameters, whole."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = run(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(whole(loss))
    assert all(isinstance(p, DTensor) for p in model.parameters())
    return [*losses, *map(whole, model.parameters())]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


if __name__ == "__main__":
    torch.multiprocessing.spawn(process, tuple(sys.argv[1:]), nprocs=RANKS)
