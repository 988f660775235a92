"""Published memory of torchtitan beside what ``shardc plan`` says of the same models: Llama 3.1 8B with FSDP,
and, if asked, 405B with FSDP, tensor parallelism and a pipeline.

    python test/bench/torchtitan_memory.py [405B]

Published are reserved bytes of PyTorch's caching allocator at the end of 2024, with selective recomputation.
The plan is shardc's own ``zero3`` program; what FSDP2 keeps beside that is added, by what its code does:

- FSDP2 gathers the root's weights (embedding, norm, output) at once and keeps them for the whole step, after
  a buffer of the same size that lies in the pool of another stream;
- the last block's weights are not given back after its forward;
- sharded gradients come from the pool of the stream that reduces them, which activations cannot use;
- without torch.compile, selective checkpointing also keeps the second product of the feed-forward, which no
  backward reads.

The 405B row is shardc's own program with nothing added, in bf16 where torchtitan computes in float8. It names
the stages' ranks; torchtitan logs that of the last, which has the loss. Nothing is fitted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import torch
from published_llama.llama import LLAMA_8B, LLAMA_405B, Llama, Sizes, loss

from shardc.planning.candidates import Candidate
from shardc.planning.memory import RankMemory
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question

GIB = 1 << 30
LOCAL_BATCH, SEQUENCE = 2, 8192
BF16, F32 = 2, 4


@dataclass(frozen=True)
class Row:
    """A published row. ``compiled``: with torch.compile."""

    devices: int
    compiled: bool
    gib: float


ROWS = (Row(8, False, 82.4), Row(8, True, 77.0), Row(128, False, 67.0), Row(128, True, 62.0))


PIPELINE_GIB, PIPELINE_BATCH = 82.5, 256
PIPELINE = Candidate({"pipe": 8, "data": 8, "tensor": 8}, "pipeline*zero3*sequence", micro_batches=32)
TENSOR_PLAN = {
    "tok_embeddings": "embedding_rowwise",
    **{f"layers.*.attention.{name}": "colwise" for name in ("wq", "wk", "wv")},
    "layers.*.attention.wo": "rowwise",
    **{f"layers.*.feed_forward.{name}": "colwise" for name in ("w1", "w3")},
    "layers.*.feed_forward.w2": "rowwise",
    "output": "colwise",
}
"""How torchtitan cuts weights."""


def question(sizes: Sizes, batch: int) -> Question:
    """The step of a global batch, on the meta device."""
    with torch.device("meta"):
        model = Llama(sizes, SEQUENCE)
        ids = torch.empty(batch, SEQUENCE, dtype=torch.int64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    return Question("Llama", model, optimizer, (ids, ids), loss, ids.numel())


def fsdp_bytes(model: Llama, devices: int) -> int:
    """What FSDP2 keeps beside shardc's program."""
    everything = sum(p.numel() for p in model.parameters())
    block = sum(p.numel() for p in model.layers[-1].parameters())
    root = everything - len(model.layers) * block
    return 2 * root * BF16 + block * BF16 + everything * F32 // devices


def kept_bytes(sizes: Sizes) -> int:
    """The feed-forward's second product, of all layers."""
    return sizes.layers * LOCAL_BATCH * SEQUENCE * sizes.dim * BF16


def main(sizes: Sizes = LLAMA_8B) -> None:
    print("devices  compile  published  tensors  reserved  with FSDP2  error")
    known: dict[int, tuple[RankMemory, int]] = {}
    for row in ROWS:
        if row.devices not in known:
            asked = question(sizes, LOCAL_BATCH * row.devices)
            (memory,) = Pricer(asked).price(Candidate({"data": row.devices}, "zero3")).memory
            assert isinstance(asked.model, Llama)
            known[row.devices] = memory, fsdp_bytes(asked.model, row.devices)
        memory, more = known[row.devices]
        predicted = memory.reserved_bytes + more + (0 if row.compiled else kept_bytes(sizes))
        figures = (memory.peak_bytes / GIB, memory.reserved_bytes / GIB, predicted / GIB)
        texts = "  ".join(f"{figure:8.1f}" for figure in figures)
        error = predicted / GIB / row.gib - 1
        print(f"{row.devices:7}  {row.compiled!s:7}  {row.gib:9.1f}  {texts}  {error:+6.1%}")


def pipeline() -> None:
    """The row of 405B: parameters are gathered once a step, as FSDP does in a pipeline."""
    asked = question(replace(LLAMA_405B, recompute="none"), PIPELINE_BATCH)
    asked.model._tp_plan = TENSOR_PLAN  # type: ignore[assignment]
    priced = Pricer(asked).price(PIPELINE, recompute="full", gather="step")
    print("rank  published  tensors  reserved  error")
    for memory in priced.memory:
        tensors, reserved = memory.peak_bytes / GIB, memory.reserved_bytes / GIB
        error = reserved / PIPELINE_GIB - 1
        print(f"{memory.rank:4}  {PIPELINE_GIB:9.1f}  {tensors:7.1f}  {reserved:8.1f}  {error:+6.1%}")


if __name__ == "__main__":
    pipeline() if sys.argv[1:] == ["405B"] else main()
