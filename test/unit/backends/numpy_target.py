"""A third target: a kernel's body, run by NumPy. It is one class here, and a line where it is registered."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_mlir import ir

from shardc.backends.base import CompiledKernels, Target
from shardc.backends.body.extract import extract, kernels
from shardc.cache import disk
from shardc.dialects.context import new_context
from shardc.passes.fuse.bodies.flat import SIZE
from shardc.runtime.kernels.kernel_call import check
from shardc.runtime.kernels.loaders import Kernels

from .numpy_body import array, refused, run


class NumpyTarget(Target):
    """Kernels are texts, of which NumPy runs an op after the other."""

    backend = "numpy"
    runs_on_host = True

    def takes(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def compile(self, module: ir.Module, tf32: bool = False) -> CompiledKernels:
        if not kernels(module):
            return CompiledKernels()
        functions = extract(module)
        errors = {
            f.attributes["sym_name"].value: why for f in functions.body if (why := refused(f.operation))
        }
        content = functions.operation.get_asm(print_generic_op_form=True).encode()
        name = f"kernels-{hashlib.sha256(content).hexdigest()[:32]}.mlir"
        return CompiledKernels(errors=errors) if errors else CompiledKernels(disk.keep(name, content))

    @staticmethod
    def load(path: Path) -> NumpyKernels:
        return NumpyKernels(disk.read(path.name)[1].decode())


class NumpyKernels(Kernels):
    """``called`` are the names of the kernels that ran."""

    called: list[str] = []

    def __init__(self, text: str) -> None:
        self._text = text

    def kernel(self, name: str, outputs: Any, size: int | None = None, checks: Any = None) -> Any:
        text = self._text if size is None else self._text.replace(str(SIZE), str(size))
        module = ir.Module.parse(text, new_context())
        (function,) = [f.operation for f in module.body if f.attributes["sym_name"].value == name]
        return partial(self._call, name, function, outputs, checks or {}, size, module)

    def _call(self, name, function, outputs, checks, size, _, *tensors):
        self.called.append(name)
        flat = [t.reshape(-1) if size is not None and t.dim() else t for t in tensors]
        values = dict(zip(function.regions[0].blocks[0].arguments, map(array, flat), strict=True))
        *ops, end = (view.operation for view in function.regions[0].blocks[0].operations)
        for op in ops:
            values.update(zip(op.results, run(op, values), strict=True))
        results = []
        for number, (output, value) in enumerate(zip(outputs, end.operands, strict=True)):
            found = torch.from_numpy(np.ascontiguousarray(values[value]))
            if number in checks:
                check(int(found), checks[number])
            if isinstance(output, int):  # the memory of an argument
                results.append(tensors[output].copy_(found.reshape(tensors[output].shape)))
            else:
                results.append(found.reshape(output[0]).to(output[1]))
        return tuple(results)
