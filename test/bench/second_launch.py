"""Times of the first and later launches of one script with two versions of shardc, in one run.

    git worktree add ../old 630eebb6
    python test/bench/second_launch.py ../old .

Each tree has a cache of its own, empty at first. Its first launch compiles; then both trees are launched in
turn, ``--rounds`` times. A launch is a 50M Llama's training step on ``--ranks`` local processes with one
thread each; figures are the CPU seconds of ``compile_step`` in a process, without imports and children: the
median of the ranks, least and most in parentheses. With ``--meta`` it is Llama-3-8B for 8 x 8 devices, on the
meta device, in one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import heading, table

MARK = "compile_step took "

LARGE = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
LARGE |= {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}
SMALL = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8}
SMALL |= {"num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 512}


def compile_once(meta: bool) -> float:
    """CPU seconds of ``compile_step`` in this process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import shardc

    torch.set_num_threads(1)
    with torch.device("meta" if meta else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(**(LARGE if meta else SMALL)))
        tokens = torch.zeros((16, 8192) if meta else (8, 256), dtype=torch.int64)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    options = {"mesh": {"data": 1}, "plan": "data"}
    if meta:
        options = {"mesh": {"data": 8, "tensor": 8}, "plan": "data*tensor"}
    elif world > 1:
        options = {"mesh": {"data": world // 2, "tensor": 2}, "plan": "zero3*tensor"}
    optimizer = torch.optim.AdamW(model.parameters())
    started = time.process_time()
    shardc.compile_step(model, optimizer, {"input_ids": tokens, "labels": tokens}, **options)
    return time.process_time() - started


def launch(tree: Path, cache: Path, ranks: int, meta: bool) -> list[float]:
    """The seconds of each rank."""
    here = [str(Path(__file__).resolve()), str(tree), str(tree), "--work", *(["--meta"] if meta else [])]
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(tree.resolve() / "python"),
        "SHARDC_CACHE_DIR": str(cache),
    }
    command = [sys.executable, *(run if ranks > 1 else ()), *here]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(line.removeprefix(MARK)) for line in done.stdout.splitlines() if line.startswith(MARK)]


def text(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--meta", action="store_true")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        sys.stdout.write(f"{MARK}{compile_once(given.meta)}\n")
        sys.stdout.flush()
        os._exit(0)  # ranks that compile alone never join
    ranks = 1 if given.meta else given.ranks
    trees = {"old": given.old, "new": given.new}
    with tempfile.TemporaryDirectory(prefix="shardc-launch-") as folder:
        caches = {name: Path(folder) / name for name in trees}
        first = {name: launch(tree, caches[name], ranks, given.meta) for name, tree in trees.items()}
        later: dict[str, list[float]] = {name: [] for name in trees}
        for _ in range(given.rounds):
            for name, tree in trees.items():
                later[name] += launch(tree, caches[name], ranks, given.meta)
    model = "Llama-3-8B, 8 x 8" if given.meta else "a 50M Llama"
    print(
        heading(f"Launches of {model}, {ranks} processes, {given.rounds} later launches, CPU s of a process")
    )
    rows = [(name, text(first[name]), text(later[name])) for name in trees]
    print(table(("tree", "first launch", "later launches"), rows))


if __name__ == "__main__":
    main()
