"""One training step of a decoder with mixtures of experts on four CPU processes: ours, with compiled kernels
and with ATen alone, against experts by ``all_to_all_single`` that are written by hand on
``torch.distributed`` (``expert_peer.py``).

    python test/bench/expert_step.py

f32, AdamW (the peer's fused), one thread a process. The peer sends the rows that there are, of numbers that
it exchanges first; ours has room for all rows of a device at every other, or for ``--capacity`` equal shares
of them. All run in the same processes, in turns whose order is drawn anew, each step between two barriers;
medians after the warm-up, a ratio's terms from one turn. CPU seconds are those of all four processes
together. Losses of the first step must agree to 1e-5, those of the last to 1e-3: a router may choose
otherwise by a rounding.
"""

from __future__ import annotations

import argparse
import copy
from functools import partial

import torch
import torch.distributed as dist
from decoder import Decoder, Sizes
from expert_peer import ExpertPeer
from four_process_step import Step
from launch import PROCESSES, on_processes
from peer_turns import compare
from torch import Tensor

import shardc

PEER = "by hand"


def ours(model: Decoder, batch: tuple[Tensor, Tensor], capacity: float | None, fuse: bool) -> Step:
    step = shardc.compile_step(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        batch,
        mesh={"expert": PROCESSES},
        plan="expert",
        loss=lambda loss, _: loss,
        expert_capacity=capacity,
        fuse=fuse,
    )
    step.running  # noqa: B018 (joins the ranks, before anything is timed)
    return lambda: step(batch)


def work(options: argparse.Namespace) -> None:
    """What each of the four processes does."""
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    sizes = Sizes(blocks=options.blocks, width=options.width, inner=options.width, experts=options.experts)
    model = Decoder(sizes)
    ids = torch.randint(0, sizes.vocab, (options.batch, options.sequence))
    batch = ids, ids.roll(-1, 1)
    steps: dict[str, Step] = {PEER: ExpertPeer(copy.deepcopy(model), batch)}
    for title, capacity in (("", None), (f", capacity {options.capacity}", options.capacity)):
        steps[f"shardc{title}"] = ours(copy.deepcopy(model), batch, capacity, fuse=True)
        steps[f"shardc{title}, ATen alone"] = ours(copy.deepcopy(model), batch, capacity, fuse=False)
    what = f"{options.experts} experts of width {options.width}, {sizes.chosen} for a row"
    size = f"{options.blocks} blocks, {what}, batch {options.batch} x {options.sequence}"
    title = f"Experts on four processes ({size}, {options.steps} steps)"
    compare(title, steps, dict.fromkeys(steps, PEER), options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16, help="sequences in the batch")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--capacity", type=float, default=2.0, help="of a rank, in equal shares")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=3)
    options = parser.parse_args()
    on_processes(partial(work, options))


if __name__ == "__main__":
    main()
