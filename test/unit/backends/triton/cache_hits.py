"""Binds every function of a folder of Triton modules as on a GPU that is not here, and prints which ones had
to be compiled.

``python cache_hits.py FOLDER FUNCTIONS ARCH [BUILD]``: a JSON list of [module, function, types of its
arguments, constants, warps, stages], the GPU's architecture (90), and what stands for a hash of Triton's
files, if not these.
"""

import itertools
import json
import sys
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from shardc.runtime.kernels.triton_kernels import Modules

TYPES = {
    "*fp32": torch.float32,
    "*bf16": torch.bfloat16,
    "*i64": torch.int64,
    "*i32": torch.int32,
    "*i1": torch.bool,
}
SIZES = (1 << 12, (1 << 12) + 3)
"""Of which one is a multiple of 16: Triton compiles a function for each such case."""


def main(folder: str, functions: str, arch: str, build: str | None = None) -> None:
    if build is not None:
        triton.runtime.cache.triton_key = lambda: build
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: GPUTarget("cuda", int(arch), 32),
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
        )
    )
    hits: dict[str, list[bool]] = {}
    modules = Modules(folder)
    triton.knobs.compilation.listener = lambda src, cache_hit, **_: hits.setdefault(src.name, []).append(
        cache_hit
    )
    for module, name, types, constants, warps, stages in json.loads(functions):
        function = getattr(modules._module(module), name)
        for given in itertools.product(*([TYPES[t]] if t in TYPES else SIZES for t in types)):
            function.warmup(*given, **constants, num_warps=warps, num_stages=stages, grid=(1,))
    print(json.dumps({name: all(found) for name, found in hits.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
