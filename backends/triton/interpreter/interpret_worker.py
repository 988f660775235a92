"""Functions of the process (under ``TRITON_INTERPRET=1``) that runs programs in Triton's interpreter.

The interpreter lacks some features, which :func:`patch` adds:

* the vendor's functions: numpy computes them in f64, then rounds;
* scans and reductions by a function of two values: folded over whole slices;
* loop bounds that are arrays of one number;
* bf16: Triton 3.6 truncates to it instead of rounding, and multiplies its bits as integers.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

from shardc.runtime.kernels.triton_kernels import Modules

_POWERS = (np.exp, np.exp2, np.expm1, np.log, np.log1p, np.log2)
_OTHERS = (np.copysign, np.cos, np.cosh, np.log10, np.sin, np.sinh, np.tan, np.tanh, np.trunc, np.fmod)
_INVERSES = (np.arccos, np.arccosh, np.arcsin, np.arcsinh, np.arctan, np.arctan2, np.arctanh)
FUNCTIONS = {function.__name__: function for function in (*_POWERS, *_OTHERS)} | {
    **{function.__name__.replace("arc", "a"): function for function in _INVERSES},
    "pow": np.power,
    "nearbyint": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: torch.erf(torch.from_numpy(np.asarray(x))).numpy(),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


@contextmanager
def patch() -> Iterator[None]:
    """Add the features that the interpreter lacks; remove them at the end of the block."""
    builder = interpreter.InterpreterBuilder
    dot, cast, language = builder.create_dot, builder.cast_impl, interpreter._patch_lang_tensor

    def rounded(self, x, type_):
        found = _rounded(x, type_)
        return cast(self, x, type_) if found is None else found  # a block with a 0 in it is false

    def patched(tensor, scope):
        language(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))

    added = [(libdevice, name, _library(function)) for name, function in FUNCTIONS.items()]
    added += [
        (interpreter.ReduceOps, "generic_reduce", _fold),
        (interpreter.ScanOps, "generic_scan", _scan),
        (builder, "create_dot", lambda self, a, b, *rest: dot(self, _wide(a), _wide(b), *rest)),
        (builder, "cast_impl", rounded),
        (interpreter, "_patch_lang_tensor", patched),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in added]
    _set(added)
    try:
        yield
    finally:
        _set(before)


def _set(attributes):
    for owner, name, value in attributes:
        setattr(owner, name, value)


def _wide(handle):
    """Return a bf16 block as f32; other blocks unchanged."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def _rounded(handle, type_):
    """Convert f32 to the nearest bf16, as GPUs do; return None for other types."""
    if handle.dtype.scalar != tl.float32 or type_.scalar != tl.bfloat16:
        return None
    near = torch.from_numpy(np.ascontiguousarray(handle.data)).bfloat16()
    return interpreter.TensorHandle(near.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)


def _library(function):
    def call(*operands):
        first = operands[0]
        with np.errstate(all="ignore"):
            made = function(*(np.asarray(x.handle.data).astype(np.float64) for x in operands))
        data = np.asarray(made).astype(first.handle.data.dtype)
        largest = max(operands, key=lambda x: x.handle.data.size)  # the first may be a scalar
        return tl.core.tensor(interpreter.TensorHandle(data, first.dtype.scalar), largest.type)

    return call


def _fold(self, inputs):
    """Reduce the first value along a dim, one slice after the other."""
    (value,) = inputs
    data, axis = value.handle.data, self.axis
    if axis is None:
        data, axis = data.reshape(-1), 0
    slices = (self.to_tensor(np.ascontiguousarray(s), value.dtype) for s in np.moveaxis(data, axis, 0))
    total = reduce(self.combine_fn.fn, slices)
    found = np.asarray(total.handle.data).reshape(np.delete(data.shape, axis))
    return [self.to_tensor(np.expand_dims(found, axis) if self.keep_dims else found, value.dtype)]


def _scan(self, inputs):
    """Combine each slice along a dim with all before it."""
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


def run(folder: Path) -> str:
    """Run ``program.py`` on ``inputs.pt`` with the modules in its folder; write ``results.pt``.

    Returns the error with its traceback, or an empty string.
    """
    torch.set_num_threads(1)
    try:
        modules = Modules(folder)
        names = {"kernel": modules.kernel, "kernels": modules.batch, "empty": modules.empty}
        with patch(), np.errstate(all="ignore"):
            exec(compile((folder / "program.py").read_text(), str(folder / "program.py"), "exec"), names)
            inputs = torch.load(folder / "inputs.pt", weights_only=True)
            results = names["graph"](SimpleNamespace(device=torch.device("cpu")), inputs)
        torch.save(list(results), folder / "results.pt")
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    return ""
