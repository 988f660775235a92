"""Demo: a Hugging Face Llama's whole training step, compiled for a 2 x 2 mesh and trained on four processes.

`make demo` runs it. Every process compiles the same single-device program, then all four train together.
Process 0 also trains the same model on one device, and compares losses and parameters.
"""

import copy
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import shardc

STEPS = 10
MESH = {"data": 2, "tensor": 2}
PLAN = "zero3*tensor"


def train() -> None:
    """Compile and train the model in one of the four processes."""
    from llama import build

    torch.set_num_threads(1)
    # full_tensor() below gathers over two axes, and DTensor warns on each rank that one gather would do.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    rank = int(os.environ["RANK"])
    model, optimizer, batch = build()
    reference = copy.deepcopy(model)
    reference_optimizer = torch.optim.AdamW(reference.parameters(), lr=3e-3, weight_decay=0.1)

    step = shardc.compile_step(model, optimizer, batch, mesh=MESH, plan=PLAN)
    if rank == 0:
        print(step.plan, flush=True)
        print(f"\n{'step':>4} {'4 processes':>12} {'one device':>12} {'ms':>7}", flush=True)
    for i in range(STEPS):
        started = time.perf_counter()
        loss = step(batch)
        took_ms = (time.perf_counter() - started) * 1e3
        if rank == 0:
            reference_optimizer.zero_grad()
            expected = reference(**batch).loss
            expected.backward()
            reference_optimizer.step()
            print(f"{i:>4} {loss.item():>12.6f} {expected.item():>12.6f} {took_ms:>7.1f}", flush=True)
    expected_values = dict(reference.named_parameters())
    worst = 0.0
    for name, parameter in step.named_parameters():
        whole = parameter.full_tensor()
        worst = max(worst, (whole - expected_values[name]).abs().max().item()) if rank == 0 else 0.0
    if rank == 0:
        print(f"\nlargest difference of any parameter after {STEPS} steps: {worst:.1e}", flush=True)
    finish(0 if worst < 1e-3 else 1)


def finish(code: int) -> None:
    """End all processes together, because Gloo's threads may abort an ordinary exit."""
    sys.stdout.flush()
    torch.distributed.barrier()
    os._exit(code)


def main() -> int:
    """Start this file on four processes."""
    ranks = MESH["data"] * MESH["tensor"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        __file__,
    ]
    return subprocess.run(command, env=environment, cwd=Path(__file__).parent, check=False).returncode


if __name__ == "__main__":
    train() if "RANK" in os.environ else sys.exit(main())
