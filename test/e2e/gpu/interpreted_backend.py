"""``torch.compile(backend="shardc")`` as on a GPU that is not here: a process started with
``TRITON_INTERPRET=1``.

The one thing that is pretended is that the CPU's tensors are those of an H100: the registry maps their
device to sm_90. From there on everything is what a GPU's graphs go through: fusion, Triton modules,
ahead-of-time compilation for sm_90, archives, programs. Kernels run in Triton's interpreter, on the CPU's
memory.

``python interpreted_backend.py FOLDER [--measured]``: runs ``FOLDER/case.py``, whose ``run(compile)`` gives a
tree of tensors, and saves them, and how many kernels were bound, in ``FOLDER/results.pt``. With
``--measured`` benchmarks are run, by the host's clock.
"""

import importlib.util
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import torch

from shardc.backends import registry
from shardc.backends.benchmark.clocks import HostClock
from shardc.backends.triton import target as triton_target
from shardc.backends.triton.interpreter.interpret_worker import patch
from shardc.backends.triton.target import TritonTarget
from shardc.cost.machine import GPUS
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.runtime.kernels.triton_kernels import Modules


def pretend() -> list[str]:
    """Maps the CPU to sm_90; the names of kernels as programs bind them."""
    registry.target_for = lambda device: TritonTarget(GPUS["sm_90"])
    bound: list[str] = []
    for name in ("kernel", "batch"):
        setattr(Modules, name, _noted(getattr(Modules, name), bound))
    return bound


def measure() -> None:
    """Lets benchmarks take the CPU for the GPU."""
    triton_target.cuda = SimpleNamespace(is_current_stream_capturing=lambda: False)
    TritonTarget.local_device = lambda self: torch.device("cpu")
    TritonTarget.clock = lambda self, device: HostClock()


def _noted(function, bound):
    def call(self, name, *rest, **more):
        bound.append(name)
        return function(self, name, *rest, **more)

    return call


def main(folder: Path, measured: bool) -> None:
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
    with patch():
        main(Path(sys.argv[1]), "--measured" in sys.argv)
