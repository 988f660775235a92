"""One training step of a decoder on a long sequence that four CPU processes share out: ours, with compiled
kernels and with ATen alone, against attention by gathers, by a ring and by all-to-all that is written by hand
on ``torch.distributed`` (``context_peer.py``; PyTorch's own context parallelism is for CUDA's attention).

    python test/bench/context_step.py

f32, AdamW (the peer's fused), one thread a process, causal masks, zigzag. All run in the same processes, in
turns whose order is drawn anew, each step between two barriers; medians after the warm-up, a ratio's terms
from one turn. CPU seconds are those of all four processes together. Losses of the first and the last step
must agree to 1e-5 and 1e-3.
"""

from __future__ import annotations

import argparse
import copy
from functools import partial

import torch
import torch.distributed as dist
from context_peer import ATTENTIONS, ContextPeer
from decoder import Decoder, Sizes
from four_process_step import Step
from launch import PROCESSES, on_processes
from peer_turns import compare
from torch import Tensor

import shardc


def ours(model: Decoder, batch: tuple[Tensor, Tensor], kind: str, fuse: bool) -> Step:
    step = shardc.compile_step(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        batch,
        mesh={"context": PROCESSES},
        plan=kind,
        loss=lambda loss, _: loss,
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
    model = Decoder(Sizes(blocks=options.blocks, width=options.width, inner=options.width * 11 // 4))
    ids = torch.randint(0, 2048, (options.batch, options.sequence))
    batch = ids, ids.roll(-1, 1)
    steps, peers = dict[str, Step](), dict[str, str]()
    for kind in options.kinds:
        peer = f"by hand, {kind}"
        steps[peer] = ContextPeer(copy.deepcopy(model), batch, kind)
        steps[f"shardc, {kind}"] = ours(copy.deepcopy(model), batch, kind, fuse=True)
        steps[f"shardc, {kind}, ATen alone"] = ours(copy.deepcopy(model), batch, kind, fuse=False)
        peers |= dict.fromkeys((name for name in steps if kind in name), peer)
    size = f"{options.blocks} blocks of width {options.width}, batch {options.batch} x {options.sequence}"
    compare(f"A sequence on four processes ({size}, {options.steps} steps)", steps, peers, options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2, help="sequences in the batch")
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--kinds", nargs="*", choices=tuple(ATTENTIONS), default=list(ATTENTIONS))
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=3)
    options = parser.parse_args()
    on_processes(partial(work, options))


if __name__ == "__main__":
    main()
