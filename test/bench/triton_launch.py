"""Cost in Python of launches of a Triton kernel, by Triton and by the runtime, under a simulated driver.

``python test/bench/triton_launch.py``: the C function that would start the kernel does nothing here, so the
figures are all that stands before it. Contenders take turns. On a GPU, ``test/gpu/test_launch.py`` measures
the whole launch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import torch
from triton.runtime import driver

from shardc.runtime.kernels import triton_launch as launch

TESTS = Path(__file__).parents[1] / "e2e" / "gpu"
CALLS, ROUNDS = 2000, 15


def main() -> None:
    sys.path.insert(0, str(TESTS))
    from fake_driver import CudaLauncher, fake_driver

    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    driver.set_active(fake_driver())
    CudaLauncher.__init__ = _without_notes(CudaLauncher.__init__)
    x, y, out = (torch.empty(64) for _ in range(3))
    tiles = torch.empty(64, 64)
    plain, direct = _module(), launch.with_launchers(_module())
    assert plain.launch is not direct.launch, "this Triton's launch is not known"
    cases = {
        "3 pointers, 1 size": lambda module: module.launch(x, y, out, 48),
        "2 pointers, descriptors": lambda module: module.launch_all(tiles, tiles, 16),
    }
    print("| kernel | Triton's launch, us of CPU | ours | ratio |\n|---|---|---|---|")
    for name, call in cases.items():
        found = {module: [] for module in (plain, direct)}
        for turn in range(ROUNDS):
            for module in (plain, direct) if turn % 2 else (direct, plain):
                call(module)
                started = time.process_time()
                for _ in range(CALLS):
                    call(module)
                found[module].append((time.process_time() - started) / CALLS * 1e6)
        before, ours = sorted(found[plain])[ROUNDS // 2], sorted(found[direct])[ROUNDS // 2]
        print(f"| {name} | {before:.1f} | {ours:.1f} | {ours / before:.2f} |")


def _without_notes(init):
    def made(self, *given):
        init(self, *given)
        self.launch = _nothing

    return made


def _nothing(*_: object) -> None:
    """The C function."""


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernels_of_a_test", TESTS / "kernels_of_a_test.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
