"""One problem of KernelBench on so many threads, in a process of its own: values, times and the bound, as a
line of JSON for each direction.

    python test/bench/kernelbench/one.py FILE SIZES THREADS REPEATS CONTENDER ...
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from bounds import bound
from problems import Problem, tensors
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1]))
from cpu_kernels import measure

CONTENDERS: dict[str, Callable[[nn.Module], Any]] = {
    "shardc": lambda model: torch.compile(model, backend="shardc", dynamic=False),
    "inductor": lambda model: torch.compile(model, dynamic=False),
    "max-autotune": lambda model: torch.compile(model, dynamic=False, mode="max-autotune-no-cudagraphs"),
    "eager": lambda model: model,
}
"""What compiles a model, by contender; ``max-autotune`` is Inductor's mode ``max-autotune-no-cudagraphs``."""


def runner(model: nn.Module, inputs: Sequence[Any], backward: bool) -> Callable[[], list[Tensor]]:
    """What one round calls: results, and gradients of parameters and inputs where asked."""
    if not backward:

        def forward() -> list[Tensor]:
            torch.manual_seed(1)
            with torch.no_grad():
                return tensors(model(*inputs))

        return forward
    leaves = [
        v.detach().requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() else v for v in inputs
    ]
    asked = [t for t in (*model.parameters(), *tensors(leaves)) if t.requires_grad]
    torch.manual_seed(2)
    with torch.no_grad():
        seeds = [torch.randn_like(t, dtype=torch.float32).to(t.dtype) for t in tensors(model(*leaves))]

    def train() -> list[Tensor]:
        torch.manual_seed(1)
        made = tensors(model(*leaves))
        found = torch.autograd.grad(made, asked, seeds, allow_unused=True)
        return [t.detach() for t in made] + [t for t in found if t is not None]

    return train


def error(found: Sequence[Tensor], truth: Sequence[Tensor]) -> float:
    """Largest difference of any result, over the largest number in it; infinite where what is not a number or
    the shape differs.
    """
    worst = 0.0
    for got, exact in zip(found, truth, strict=True):
        if got.shape != exact.shape or not torch.equal(got.isfinite(), exact.isfinite()):
            return float("inf")
        got, exact = got.double().nan_to_num(), exact.double().nan_to_num()
        if exact.numel():
            worst = max(worst, float((got - exact).abs().max() / exact.abs().max().clamp_min(1e-30)))
    return worst


def compare(
    problem: Problem, contenders: Sequence[str], threads: int, repeats: int, backward: bool
) -> dict[str, Any]:
    """A row; ``repeats`` 0 compares values alone. Values of models with dropout are compared without it.

    Raises:
        RuntimeError: Eager refuses the direction.
    """
    model, inputs = problem.model_and_inputs()
    exact = [v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for v in inputs]
    steady, draws = _without_dropout(model)
    eager = runner(copy.deepcopy(steady), inputs, backward)()
    truth = runner(copy.deepcopy(steady).double(), exact, backward)()
    row: dict[str, Any] = {"problem": problem.name, "backward": backward, "threads": threads}
    row["errors"] = {"eager": error(eager, truth)}
    del exact
    runners: dict[str, Callable[[], list[Tensor]]] = {}
    row["compile"] = {}
    for name in contenders:
        torch.compiler.reset()
        start = time.perf_counter()
        one = runner(CONTENDERS[name](copy.deepcopy(steady)), inputs, backward)
        row["errors"][name] = error(one(), truth)
        row["compile"][name] = time.perf_counter() - start
        runners[name] = runner(CONTENDERS[name](copy.deepcopy(model)), inputs, backward) if draws else one
    if repeats:
        clock = time.thread_time if threads == 1 else time.perf_counter
        row["seconds"] = measure(runners, repeats, clock)
        row["bound"] = bound(model, inputs, backward, clock)
    return row


def _without_dropout(model: nn.Module) -> tuple[nn.Module, bool]:
    """A copy of the model whose dropouts drop nothing, and whether it had any that do."""
    found = copy.deepcopy(model)
    drops = [m for m in found.modules() if isinstance(m, nn.Dropout) and m.p]
    for module in drops:
        module.p = 0.0
    return found, bool(drops)


def _differentiates(problem: Problem) -> bool:
    """Whether a result of the problem depends on its parameters or inputs smoothly, as far as eager knows."""
    model, inputs = problem.model_and_inputs()
    leaves = [v.requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() else v for v in inputs]
    return any(made.requires_grad for made in tensors(model(*leaves)))


def main() -> None:
    file, sizes, threads, repeats, *contenders = sys.argv[1:]
    warnings.filterwarnings("ignore")
    torch.set_num_threads(int(threads))
    problem = Problem(Path(file), json.loads(sizes))
    for backward in (False, True) if _differentiates(problem) else (False,):
        try:
            row = compare(problem, contenders, int(threads), int(repeats), backward)
        except Exception as failure:  # goes into the table: every problem is counted
            row = {"problem": problem.name, "backward": backward, "threads": int(threads)}
            row["failure"] = f"{type(failure).__name__}: {str(failure)[:300]}"
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
