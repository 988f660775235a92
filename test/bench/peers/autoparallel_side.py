"""AutoParallel's side, for an interpreter that has its packages: the plan of a language model on a mesh.

    python autoparallel_side.py request.json answer.json

Its cost model asks for the name of the GPU. It gets that of the request, so that no GPU is needed; tensors
are on the CPU, processes are fake, as in AutoParallel's own examples.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor.placement_types import Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

KINDS = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_to_all_single": "all_to_all",
}
PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.")


class Loss(torch.nn.Module):
    """A language model that returns its loss."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_config(config)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, labels=labels).loss


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    sys.path.insert(0, request["repository"])
    from autoparallel.api import AutoParallel  # pyright: ignore[reportMissingImports]

    torch.cuda.get_device_name = lambda device=None: request["gpu"]
    sizes = tuple(request["mesh"].values())
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(sizes))
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", sizes, mesh_dim_names=tuple(request["mesh"]))
    config = AutoConfig.from_pretrained(request["config"], use_cache=False, attn_implementation="eager")
    with torch.device("meta"):
        model = Loss(config)
    shape = request["batch"], request["length"]

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(0, config.vocab_size, shape)
        return tokens, tokens.clone()

    others = Shard(0) if request["along_all"] else Replicate()
    cut = (Shard(0), *[others] * (len(sizes) - 1))
    start_s = time.perf_counter()
    with AutoParallel(model, batch, mesh, None, repeated_subgraphs=True) as parallel:
        parallel.add_input_constraints([cut, cut])
        if request["sharded"]:
            parallel.add_parameter_memory_constraint(low=None, high=None)
        built_s = time.perf_counter()
        placement = parallel.optimize_placement()
        solved_s = time.perf_counter()
        parallel.apply_placement(placement)
    nodes = list(parallel.parallel_gm.graph.nodes)
    return {
        "build_s": built_s - start_s,
        "solve_s": solved_s - built_s,
        "apply_s": time.perf_counter() - solved_s,
        "collectives": _collectives(nodes),
        "flops": sum(_flops(node) for node in nodes),
    }


def _collectives(nodes: list[torch.fx.Node]) -> list[list[Any]]:
    """Return (kind, group size, bytes of an operand, times) of each collective in a device's program."""
    found = Counter[tuple[str, int, int]]()
    for node in nodes:
        name = str(node.target)
        if node.op != "call_function" or "_c10d_functional" not in name or "wait_tensor" in name:
            continue
        group = next(arg for arg in reversed(node.args) if isinstance(arg, str) and not arg.isalpha())
        ways = torch.distributed.distributed_c10d._resolve_process_group(group).size()
        value = node.args[0].meta["val"]
        found[KINDS[name.split(".")[1]], ways, value.numel() * value.element_size()] += 1
    return [[*key, times] for key, times in sorted(found.items())]


def _flops(node: torch.fx.Node) -> int:
    if node.op != "call_function" or not str(node.target).startswith(PRODUCTS):
        return 0
    left = node.args[1 if "add" in str(node.target) else 0].meta["val"]
    return 2 * math.prod(node.meta["val"].shape) * left.shape[-1]


def main() -> None:
    request, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps(_answer(json.loads(request.read_text()))))


if __name__ == "__main__":
    main()
