"""Training with an artefact from the command line: ``torchrun --nproc-per-node 4 out/run.py --steps 10``."""

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from .comm.launcher import end_with_launcher
from .environment import DEBUG, FAULT, RANK
from .errors import BatchMismatch, RankStopped, RuntimeFailure
from .operators.registered import import_library
from .outputs import StepResult
from .report.measured import Measured, write_calls
from .step import TrainStep
from .tensor_file import TensorFile


def main(folder: Path) -> None:
    """Train, print each step's loss on rank 0, and exit: 0, 1 if a step failed, 2 for bad input."""
    end_with_launcher()
    options = _options()
    rank = RANK.get()
    try:
        code = _train(folder, options)
    except RuntimeFailure as failure:
        code = 1 if isinstance(failure, RankStopped) else 2
        print(f"rank {rank}: {failure}", file=sys.stderr, flush=True)
    except Exception as error:
        code = 1
        print(f"rank {rank}: {_describe(error)}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    # Gloo's threads abort some processes at interpreter exit (8 of 10 runs with 4 ranks), so skip that.
    os._exit(code)


def _describe(error: Exception) -> str:
    """Return one line on an error, or its traceback if debugging is on."""
    if DEBUG.get():
        return traceback.format_exc()
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text} (the traceback: shardc run --debug, or {DEBUG.name}=1)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Train with a compiled step, under torchrun.")
    parser.add_argument("--steps", type=int, default=10, help="how many steps (default 10)")
    parser.add_argument("--load", type=Path, help="a checkpoint to start from")
    parser.add_argument("--save", type=Path, help="where to write a checkpoint at the end")
    parser.add_argument("--batches", type=Path, help="batches, as `<number>/<leaf>` in a safetensors file")
    parser.add_argument("--cuda-graph", action="store_true", help="capture the step as a CUDA graph")
    trace_help = "where to write when what ran in the last step, as a Chrome trace"
    parser.add_argument("--trace", type=Path, help=trace_help)
    calls_help = "a folder for each rank's calls with their seconds, of every step but the first two"
    parser.add_argument("--calls", type=Path, help=calls_help)
    report_help = "say what a step took, in time and memory, beside what was predicted"
    parser.add_argument("--report", action="store_true", help=report_help)
    parser.add_argument("--predicted-s", type=float, help="seconds that a step was predicted to take")
    planned_help = "bytes of tensors that a rank was planned to have at its peak"
    parser.add_argument("--planned-bytes", type=int, default=0, help=planned_help)
    many = {"dest": "libraries", "action": "append", "default": [], "metavar": "MODULE"}
    import_help = "a module, or a .py file, that registers the custom operators of the program"
    parser.add_argument("--import", help=import_help, **many)
    return parser.parse_args()


def _train(folder: Path, options: argparse.Namespace) -> int:
    for library in options.libraries:
        import_library(library)
    step = TrainStep.load(folder)
    if options.load:
        step.load_checkpoint(options.load)
    if options.cuda_graph:
        step.use_cuda_graph()
    if options.trace is not None:
        step.check_traceable()
    if step.rank == 0 and step.device.type != "cpu":
        for line in step.collectives:
            print(f"collectives of {line}", flush=True)
    batches = batches_of(options.batches or folder / "batches.safetensors")
    if options.calls is not None:
        write_calls(step, batches, options.steps, options.calls)
        return 0
    measured = Measured(step, options.steps) if options.report and step.device.type == "cpu" else None
    for number in range(options.steps):
        _drill(step.rank, number)
        start_s = time.perf_counter()
        trace: Path | None = options.trace if number == options.steps - 1 else None
        batch = next(batches)
        run = step.step_leaves if measured is None else measured.runner(number)
        loss, *numbers = _numbers(run(batch) if trace is None else step.trace_leaves(batch, trace))
        if step.rank == 0:
            elapsed_ms = (time.perf_counter() - start_s) * 1e3
            if number == 0 and (counts := step.symmetric_collectives()):
                taken = ", ".join(f"{n} {name}" for name, n in counts.items())
                print(f"by symmetric memory: {taken}", flush=True)
            words = "".join(f"  {name} {value:.6g}" for name, value in numbers)
            print(f"step {step.steps_done}  loss {loss[1]:.6g}{words}  {elapsed_ms:.1f} ms", flush=True)
            if measured is not None:
                measured.took(number, elapsed_ms / 1e3)
    said = "" if measured is None else measured.report(options.predicted_s, options.planned_bytes)
    if said and step.rank == 0:
        print(said, flush=True)
    if options.save:
        step.save_checkpoint(options.save)
    if dist.is_initialized():
        dist.barrier()
    return 0


def _numbers(made: Tensor | StepResult) -> list[tuple[str, float]]:
    """Return the loss of a step, and its 0-d outputs."""
    loss, outputs = (made, {}) if isinstance(made, Tensor) else made
    scalars = {name: value for name, value in outputs.items() if not value.dim() and not value.is_complex()}
    return [(name, float(value)) for name, value in {"loss": loss, **scalars}.items()]


def batches_of(path: Path) -> Iterator[dict[str, Tensor]]:
    """Yield the batches of a file, in order and repeatedly."""
    file = TensorFile(path)
    batches: dict[int, dict[str, str]] = {}
    for name in file.names:
        number, _, leaf = name.partition("/")
        batches.setdefault(int(number) if number.isdigit() else -1, {})[leaf] = name
    if not batches or -1 in batches:
        what = "the file holds no batches named `<number>/<leaf>`"
        raise BatchMismatch(what, str(path), "write them as `0/input_ids`")
    while True:
        for number in sorted(batches):
            yield {leaf: file.mapped(name) for leaf, name in batches[number].items()}


def _drill(rank: int, step: int) -> None:
    fault = FAULT.get().split(":")
    if fault[:2] == [str(rank), str(step)]:
        os.kill(os.getpid(), signal.SIGSTOP if fault[2:] == ["stop"] else signal.SIGKILL)
