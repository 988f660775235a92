"""Two versions of shardc against each other in one run: kernels, models, calls, and compiling Llama-3-8B.

    git worktree add ../old 6fb2989
    python test/bench/two_trees.py ../old .

Each tree has a process that builds all subjects; the two run them in turn, ``--rounds`` times, with one
thread in its own CPU time, after calls that warm up. A row has the medians, and the median of the ratios of
the rounds, new over old. Compiling Llama-3-8B for a mesh of 8 x 8 takes a process each time, ``--compiles``
times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
WORKER = "--worker"
ENOUGH_S = 0.05
"""CPU seconds of the calls that one measurement takes at least."""
COMPILE = (
    "import json, sys; sys.path.insert(0, 'test/bench'); from llama3_8b_compile import measure; "
    "found = measure(32, 'data*tensor', 'cpu'); print('result', json.dumps(found))"
)


def backend_of(root: Path) -> Callable[..., Any]:
    """A tree's own backend of ``torch.compile``: the installed entry point is that of one tree."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["shardc"].partition(":")
    return getattr(import_module(module), name)


def subjects(backend: Callable[..., Any]) -> dict[str, Callable[[], object]]:
    """What each tree times, by name; every call is one of a compiled function."""
    from whole_models import make

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, w, b = torch.randn(4096, 1024), torch.randn(1024, 1024), torch.randn(1024)
    logits, target = torch.randn(2048, 8192, requires_grad=True), torch.randint(8192, (2048,))
    rows = torch.randn(4096, 1024, requires_grad=True)
    q, k, v = (torch.randn(4, 8, 256, 64) for _ in range(3))
    small = torch.randn(64)
    functions: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
        "call of 64 elements": (lambda x: torch.tanh(x) * 2 + 1, (small,)),
        "gelu chain": (lambda x: F.gelu(x * 1.5 + 1.0) * torch.sigmoid(x), (x,)),
        "softmax": (lambda x: torch.softmax(x, -1), (x,)),
        "layer norm": (lambda x, b: F.layer_norm(x, (1024,), b, b), (x, b)),
        "rms norm": (lambda x, b: F.rms_norm(x, (1024,), b), (x, b)),
        "column sums": (lambda x: (x * x).sum(0), (x,)),
        "matmul, bias, gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (x[:1024], w, b)),
        "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)),
        "cross entropy, with gradient": (F.cross_entropy, (logits, target)),
        "layer norm, with gradient": (lambda x: F.layer_norm(x, (1024,)).square().mean(), (rows,)),
    }
    found: dict[str, Callable[[], object]] = {}
    for name, (function, given) in functions.items():
        compiled = torch.compile(function, backend=backend, dynamic=False)
        found[name] = _training(compiled, given) if "gradient" in name else _calling(compiled, given)
    for name in ("llama", "bert", "convnet"):
        model, loss = make(name, "10M")
        step = torch.compile(loss, backend=backend, dynamic=False)
        found[f"{name} of 10M, forward and backward"] = _model_step(model, step)
    return found


def _calling(function: Callable[..., Tensor], given: Sequence[Tensor]) -> Callable[[], object]:
    return lambda: function(*given)


def _training(function: Callable[..., Tensor], given: Sequence[Tensor]) -> Callable[[], object]:
    def run() -> None:
        given[0].grad = None
        function(*given).backward()

    return run


def _model_step(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Callable[[], object]:
    def run() -> None:
        model.zero_grad()
        loss(model).backward()

    return run


def work(root: Path) -> None:
    """A tree's process: says the subjects' names, then times the one that each line of stdin names."""
    sys.path.insert(0, str(HERE))
    made = subjects(backend_of(root))
    calls = {}
    for name, call in made.items():
        for _ in range(3):
            call()
        start = time.process_time()
        call()
        calls[name] = max(1, round(ENOUGH_S / max(1e-7, time.process_time() - start)))
    print("ready", json.dumps(list(made)), flush=True)
    for line in sys.stdin:
        name = line.strip()
        start = time.process_time()
        for _ in range(calls[name]):
            made[name]()
        print("took", (time.process_time() - start) / calls[name], flush=True)


class Tree:
    """The process of one tree."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._environment = os.environ | {
            "SHARDC_STEP_CACHE": "0",
            "PYTHONPATH": str(self._root / "python"),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "SHARDC_TUNING_DB": "/nonexistent/tuning.db",
        }
        command = [sys.executable, __file__, WORKER, str(self._root)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        self.subjects: list[str] = json.loads(self._answer("ready"))

    def _answer(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        raise RuntimeError(f"the process of {self._root} ended with {self._process.wait()}")

    def seconds(self, subject: str) -> float:
        """CPU seconds of a call of a subject."""
        assert self._process.stdin is not None
        print(subject, file=self._process.stdin, flush=True)
        return float(self._answer("took"))

    def compile_seconds(self) -> float:
        """CPU seconds of ``compile_step`` and the program's text, in a process of its own."""
        text = subprocess.run(
            [sys.executable, "-c", COMPILE],
            cwd=self._root,
            env=self._environment,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()
        line = next(line for line in text.splitlines() if line.startswith("result"))
        return float(json.loads(line.removeprefix("result"))["total_s"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--compiles", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the names of the subjects to time")
    given = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from machine import heading, table

    print(heading("old tree against new"))
    old, new = Tree(given.old), Tree(given.new)
    seconds: dict[str, list[tuple[float, float]]] = {}
    for number in range(given.rounds):
        for name in (subject for subject in new.subjects if given.only in subject):
            times = {tree: tree.seconds(name) for tree in ((old, new) if number % 2 else (new, old))}
            seconds.setdefault(name, []).append((times[old], times[new]))
    name = "compile of Llama-3-8B, 8 x 8"
    for _ in range(given.compiles):
        seconds.setdefault(name, []).append((old.compile_seconds(), new.compile_seconds()))
    rows = []
    for name, pairs in seconds.items():
        olds, news = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        rows.append([name, f"{olds * 1e3:,.3f} ms", f"{news * 1e3:,.3f} ms", f"{ratio:.3f}"])
    print(table(["", "old", "new", "new / old"], rows))


if __name__ == "__main__":
    work(Path(sys.argv[2])) if sys.argv[1:2] == [WORKER] else main()
