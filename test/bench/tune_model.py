"""How much faster tuning makes a whole training step: a model under torch.compile, untuned against tuned, in
turns.

    python test/bench/tune_model.py                                  # the 50M Llama, 5 minutes
    python test/bench/tune_model.py --model gpt2 --size 10M --seconds 60
    python test/bench/tune_model.py --database trials.db             # goes on with what an earlier run tried

Tunes the kernels of the forward and backward graphs into a database of its own, then compiles the step twice,
without and with it, and times both in turns: CPU time for one thread, the wall's for several. The gain of
each kernel is printed first. Both steps choose between kernels and calls of libraries by measurement, so the
gain is that of the configurations alone.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from types import FunctionType

import torch
from machine import heading, table
from torch import nn
from whole_models import MODELS, SIZES, make

from shardc.commands.tune import jobs_of_function, tune_found
from shardc.report.tuning_text import tuning_text
from shardc.tuner.session import Budget

Step = Callable[[], torch.Tensor]


def compiled(name: str, size: str, options: dict[str, object]) -> Step:
    """A training step of a model of its own: forward, loss, backward."""
    model, loss = make(name, size)
    run = torch.compile(_copy(), backend="shardc", dynamic=False, options=options)

    def step() -> torch.Tensor:
        model.zero_grad()
        value = run(loss, model)
        value.backward()
        return value.detach()

    for _ in range(3):
        step()
    return step


def _loss(loss: Callable[[nn.Module], torch.Tensor], model: nn.Module) -> torch.Tensor:
    return loss(model)


def _copy() -> Callable[..., torch.Tensor]:
    """``_loss`` with code of its own: what is compiled of one code object is looked through in turn."""
    return FunctionType(_loss.__code__.replace(), globals())


def seconds_of(steps: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Of each round, the first to be called changing from one to the next."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    clock = thread_time if torch.get_num_threads() == 1 else perf_counter
    for round_ in range(repeats):
        names = list(steps)[round_ % 2 :] + list(steps)[: round_ % 2]
        for name in names:
            started = clock()
            steps[name]()
            times[name].append(clock() - started)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama", choices=MODELS)
    parser.add_argument("--size", default="50M", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--matmuls", default="auto")
    parser.add_argument("--database", type=Path, help="where trials are kept")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    how = {"matmuls": options.matmuls} if options.matmuls != "auto" else {}
    with tempfile.TemporaryDirectory() as folder:
        databases = {name: str(Path(folder, f"{name}.db")) for name in ("untuned", "tuned")}
        if options.database is not None:
            databases["tuned"] = str(options.database)
        os.environ["SHARDC_TUNING_DB"], os.environ["SHARDC_SHIPPED_TUNING"] = databases["tuned"], ""
        model, loss = make(options.model, options.size)
        jobs = jobs_of_function(lambda m: loss(m), copy.deepcopy(model), options=how)
        result = tune_found(jobs, Budget(seconds=options.seconds))
        steps = {}
        for name, database in databases.items():
            os.environ["SHARDC_TUNING_DB"] = database
            steps[name] = compiled(options.model, options.size, how)
        values = {name: float(step()) for name, step in steps.items()}
        assert abs(values["tuned"] - values["untuned"]) < 1e-3 * abs(values["untuned"]), values
        found = seconds_of(steps, options.repeats)
    print(tuning_text(result))
    print(
        heading(f"{options.model} {options.size}, {options.threads} threads, tuned for {options.seconds:g} s")
    )
    ratios = {name: [s / u for s, u in zip(of, found["untuned"], strict=True)] for name, of in found.items()}
    rows = [
        [name, 1e3 * median(of), 1e3 * min(of), f"{median(ratios[name]):.3f}"] for name, of in found.items()
    ]
    print(table(["forward and backward", "median ms", "least ms", "of untuned, round by round"], rows))


if __name__ == "__main__":
    main()
