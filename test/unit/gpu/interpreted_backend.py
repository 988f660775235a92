"""``torch.compile(backend="shardc")`` as on a GPU that is not here: a process started with ``TRITON_INTERPRET=1``.

The one thing that is pretended is that the CPU's tensors are those of an H100: ``gpu_target`` maps their device to
sm_90. From there on everything is what a GPU's graphs go through: fusion, Triton modules, ahead-of-time compilation for
sm_90, archives, programs. Kernels run in Triton's interpreter, on the CPU's memory.

``python interpreted_backend.py FOLDER [--measured]``: runs ``FOLDER/case.py``, whose ``run(compile)`` gives a tree of tensors, and
saves them, and how many kernels were bound, in ``FOLDER/results.pt``. With ``--measured`` contests are held, by the
host's clock.
"""

import importlib.util
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch

from shardc.backends.measure.clocks import HostClock
from shardc.backends.triton.interpret_worker import patch
from shardc.backends.triton.targets import TARGETS
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.driver import dynamo, gpu_contest, gpu_target, graph_attention, graph_compiler, trace_cache
from shardc.runtime.triton_kernels import Modules


def pretend() -> list[str]:
    """Maps the CPU to sm_90; the names of kernels as programs bind them."""
    for module in (gpu_target, graph_attention, graph_compiler, trace_cache, dynamo):
        module.gpu_target = lambda device: TARGETS["sm_90"]
    assert dynamo.has_kernels(torch.device("cpu"))
    bound: list[str] = []
    for name in ("kernel", "batch"):
        setattr(Modules, name, _noted(getattr(Modules, name), bound))
    return bound


def measure() -> None:
    """Lets contests take the CPU for the GPU."""
    graph_compiler.is_here = lambda device: True
    gpu_contest.cuda = SimpleNamespace(
        is_current_stream_capturing=lambda: False, device=lambda _: nullcontext()
    )
    for module in (graph_compiler, gpu_contest):
        module.DeviceClock = lambda device: HostClock()


def _noted(function, bound):
    def call(self, name, *rest, **more):
        bound.append(name)
        return function(self, name, *rest, **more)

    return call


def main(folder: Path, measured: bool) -> None:
    patch()
    torch.set_num_threads(1)
    bound = pretend()
    if measured:
        measure()
    spec = importlib.util.spec_from_file_location("case", folder / "case.py")
    case = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShardcFallbackWarning)
        results = case.run(lambda f, **more: torch.compile(f, backend="shardc", **more))
    torch.save((results, bound), folder / "results.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--measured" in sys.argv)
