"""The process that runs programs in Triton's interpreter: started with ``TRITON_INTERPRET=1`` by
``interpret.py``.

Each line of its input names a folder with ``program.py``, ``inputs.pt`` and the modules of its kernels; the
results become ``results.pt`` there, and the answer is a line of JSON: ``{}``, or an ``error``.

What the interpreter lacks is added: the vendor's functions, computed by numpy in f64 and rounded, reductions
by a function of two values, folded over whole slices, as are scans, bounds of loops that are arrays of one
number, which numpy does not convert, and bf16, which Triton 3.6 cuts off instead of rounding to it, and
multiplies as the integers of its bits.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

from shardc.runtime.kernels.triton_kernels import Modules

FUNCTIONS = {
    "copysign": np.copysign,
    "cos": np.cos,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "pow": np.power,
    "nearbyint": np.rint,
    "sin": np.sin,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
    "fmod": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: torch.erf(torch.from_numpy(np.asarray(x))).numpy(),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


def patch() -> None:
    for name, function in FUNCTIONS.items():
        setattr(libdevice, name, _library(function))
    interpreter.ReduceOps.generic_reduce = _fold
    interpreter.ScanOps.generic_scan = _scan
    dot = interpreter.InterpreterBuilder.create_dot
    interpreter.InterpreterBuilder.create_dot = lambda self, a, b, *rest: dot(self, _wide(a), _wide(b), *rest)
    cast = interpreter.InterpreterBuilder.cast_impl

    def rounded(self, x, type_):
        found = _rounded(x, type_)
        return cast(self, x, type_) if found is None else found  # a block with a 0 in it is false

    interpreter.InterpreterBuilder.cast_impl = rounded
    before = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))

    interpreter._patch_lang_tensor = patched


def _wide(handle):
    """A block of bf16 in f32."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _rounded(handle, type_):
    """f32 as the nearest bf16, as GPUs convert it; None for other types."""
    if handle.dtype.scalar != tl.float32 or type_.scalar != tl.bfloat16:
        return None
    bits = (
        torch.from_numpy(np.ascontiguousarray(handle.data))
        .bfloat16()
        .view(torch.int16)
        .numpy()
        .view(np.uint16)
    )
    return interpreter.TensorHandle(bits, tl.bfloat16)


def _library(function):
    def call(*operands):
        first = operands[0]
        with np.errstate(all="ignore"):
            made = function(*(np.asarray(x.handle.data).astype(np.float64) for x in operands))
        data = np.asarray(made).astype(first.handle.data.dtype)
        return tl.core.tensor(interpreter.TensorHandle(data, first.dtype.scalar), first.type)

    return call


def _fold(self, inputs):
    """All of the first value along a dim, one slice after the other."""
    (value,) = inputs
    data = value.handle.data
    axis = self.axis
    if axis is None:
        data, axis = data.reshape(-1), 0
    slices = [
        self.to_tensor(np.ascontiguousarray(data.take(n, axis)), value.dtype) for n in range(data.shape[axis])
    ]
    total = slices[0]
    for part in slices[1:]:
        total = self.combine_fn.fn(total, part)
    found = np.asarray(total.handle.data).reshape(np.delete(data.shape, axis))
    return [self.to_tensor(np.expand_dims(found, axis) if self.keep_dims else found, value.dtype)]


def _scan(self, inputs):
    """Each slice along a dim joined to all before it."""
    slices = [np.moveaxis(value.handle.data, self.axis, 0) for value in inputs]
    dtypes = [value.dtype for value in inputs]

    def wrap(n):
        return [self.to_tensor(np.ascontiguousarray(s[n]), t) for s, t in zip(slices, dtypes, strict=True)]

    totals, made = wrap(0), []
    for n in range(len(slices[0])):
        if n:
            joined = self.combine_fn.fn(*totals, *wrap(n))
            totals = list(joined) if isinstance(joined, tuple) else [joined]
        made.append([np.asarray(t.handle.data) for t in totals])
    whole = [np.moveaxis(np.stack(parts), 0, self.axis) for parts in zip(*made, strict=True)]
    return [self.to_tensor(np.ascontiguousarray(d), t) for d, t in zip(whole, dtypes, strict=True)]


def run(folder: Path) -> None:
    modules = Modules(folder)
    names = {"kernel": modules.kernel, "kernels": modules.batch, "empty": modules.empty}
    exec(compile((folder / "program.py").read_text(), str(folder / "program.py"), "exec"), names)
    inputs = torch.load(folder / "inputs.pt")
    with np.errstate(all="ignore"):
        results = names["graph"](SimpleNamespace(device=torch.device("cpu")), inputs)
    torch.save(list(results), folder / "results.pt")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that is printed here is taken for an answer
    torch.set_num_threads(1)
    patch()
    for line in sys.stdin:
        try:
            run(Path(json.loads(line)))
            answer = {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
