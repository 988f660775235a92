"""One training step of a 20M-parameter Llama on four CPU processes: ours, with compiled kernels and with ATen
alone, against DTensor tensor parallelism + FSDP2.

    python test/bench/four_process_step.py

Mesh data 2 x tensor 2, f32, AdamW, one thread a process. Both run in the same processes, in turn (A B A B
...), each step between two barriers; medians of ``--steps`` after ``--warmup``, a ratio's terms from one
turn. The CPU seconds are those of all four processes together. One more step of each runs under a meter that
counts collectives and bytes, and the losses are compared.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from dtensor_peer import KINDS, Peer
from launch import on_processes
from machine import heading, table
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from traffic_meter import TrafficMeter

import shardc
from shardc.cost.collective import sent_bytes

MESH = {"data": 2, "tensor": 2}
Step = Callable[[], torch.Tensor]


def model_and_ids(options: argparse.Namespace) -> tuple[Any, torch.Tensor]:
    """The model and a global batch [batch, sequence], equal on all ranks."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=options.layers,
        num_attention_heads=6,
        num_key_value_heads=6,
        vocab_size=8192,
        max_position_embeddings=options.sequence,
        use_cache=False,
    )
    return LlamaForCausalLM(shape), torch.randint(0, 8192, (options.batch, options.sequence))


def contenders(options: argparse.Namespace) -> tuple[dict[str, Step], DeviceMesh]:
    """A step each of ours and of the peer's, by name, from one and the same initial model."""
    model, ids = model_and_ids(options)
    batch = {"input_ids": ids, "labels": ids}
    steps: dict[str, Step] = {}
    for plan in options.plans:
        for name, fuse in ((f"shardc {plan}", True), (f"shardc {plan}, ATen alone", False)):
            ours = copy.deepcopy(model)
            made = shardc.compile_step(
                ours, _adamw(ours.parameters()), batch, mesh=MESH, plan=plan, fuse=fuse
            )
            made.running  # noqa: B018 (joins the ranks, before anything is timed)
            steps[name] = lambda made=made: made(batch)
    mesh = init_device_mesh("cpu", tuple(MESH.values()), mesh_dim_names=tuple(MESH))
    mine = ids.chunk(MESH["data"])[mesh.get_local_rank("data")]
    for kind in options.peers:
        for name, optimizer in (("", _adamw), (", fused AdamW", _fused_adamw))[: 2 if options.fused else 1]:
            peer = Peer(copy.deepcopy(model), mesh, kind, optimizer)
            steps[f"FSDP2, {kind}{name}"] = lambda peer=peer: peer(mine)
    return steps, mesh


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def _fused_adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True)


def time_in_turn(
    steps: dict[str, Step], options: argparse.Namespace
) -> dict[str, tuple[list[float], list[float]]]:
    """Wall and CPU seconds of each step, after the warm-up; each turn draws its order."""
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in steps}
    for turn in range(options.warmup + options.steps):
        for name, step in random.Random(turn).sample(list(steps.items()), len(steps)):  # all ranks draw alike
            dist.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            cpu = time.process_time() - cpu
            dist.barrier()
            if turn >= options.warmup:
                taken[name][0].append(time.perf_counter() - wall)
                taken[name][1].append(_summed(cpu))
    return taken


def _summed(value: float) -> float:
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def count(steps: dict[str, Step], mesh: DeviceMesh) -> dict[str, TrafficMeter]:
    axes = {tuple(dist.get_process_group_ranks(mesh.get_group(name))): name for name in MESH}
    meters = {}
    for name, step in steps.items():
        with TrafficMeter(axes, sent_bytes) as meters[name]:
            step()
    return meters


def losses(steps: dict[str, Step]) -> dict[str, float]:
    """The mean over ranks of each one's loss in one more step."""
    return {name: _summed(step().item()) / dist.get_world_size() for name, step in steps.items()}


def report(
    found: dict[str, tuple[float, float]],
    meters: dict[str, TrafficMeter],
    taken: Any,
    options: argparse.Namespace,
) -> str:
    reference = f"FSDP2, {options.peers[0]}" if options.peers else f"shardc {options.plans[0]}, ATen alone"
    base = taken[reference][0]
    ratios = {n: median(a / b for a, b in zip(w, base, strict=True)) for n, (w, _) in taken.items()}
    speed = [
        [
            n,
            1e3 * median(w),
            1e3 * min(w),
            f"{ratios[n]:.2f}x",
            1e3 * median(c),
            *(f"{x:.5f}" for x in found[n]),
        ]
        for n, (w, c) in taken.items()
    ]
    traffic = [
        [name, sum(meter.calls.values()), sum(meter.sent_bytes.values()) / 1e6, *_by_axis(meter)]
        for name, meter in meters.items()
    ]
    kinds = [
        [name, axis, kind, calls, meter.sent_bytes[kind, axis] / 1e6]
        for name, meter in meters.items()
        for (kind, axis), calls in sorted(meter.calls.items(), key=lambda item: item[0][::-1])
    ]
    size = f"{options.layers} layers, batch {options.batch} x {options.sequence}, {options.steps} steps"
    ratio = f"time / {reference}"
    return "\n".join(
        [
            heading(f"One step of a Llama on data 2 x tensor 2, four processes ({size})"),
            table(
                ["step", "median ms", "least ms", ratio, "CPU ms, 4 ranks", "first loss", "last loss"], speed
            ),
            table(["step", "collectives", "MB sent a rank", "on tensor", "MB", "on data", "MB"], traffic),
            table(["step", "axis", "kind", "calls", "MB sent a rank"], kinds),
        ]
    )


def _by_axis(meter: TrafficMeter) -> list[float]:
    row: list[float] = []
    for axis in ("tensor", "data"):
        row.append(sum(n for (_, a), n in meter.calls.items() if a == axis))
        row.append(sum(n for (_, a), n in meter.sent_bytes.items() if a == axis) / 1e6)
    return row


def work(options: argparse.Namespace) -> None:
    """What each of the four processes does."""
    torch.set_num_threads(1)
    steps, mesh = contenders(options)
    found = losses(steps)
    meters = count(steps, mesh)
    taken = time_in_turn(steps, options)
    pairs = {
        name: (first, last) for (name, first), last in zip(found.items(), losses(steps).values(), strict=True)
    }
    if dist.get_rank() == 0:
        print(report(pairs, meters, taken, options))


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that say what runs: model, batch, plans and peers."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="sequences in the global batch")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--plans", nargs="*", default=["zero3*tensor", "zero3*sequence"])
    parser.add_argument("--peers", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--fused", action="store_true", help="the peer with torch's fused AdamW as well")
    return parser


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    options = parser.parse_args()
    on_processes(lambda: work(options))


if __name__ == "__main__":
    main()
