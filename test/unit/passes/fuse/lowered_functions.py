"""Functions of tensors that each lower to a kernel: unary and binary ones, rows of a matrix, integers."""

from __future__ import annotations

import torch

aten = torch.ops.aten
X, Y = torch.linspace(-3, 3, 24).reshape(4, 6), torch.linspace(2.5, -1.5, 24).reshape(4, 6).flip(1)


UNARY = {
    "abs": aten.abs,
    "ceil": aten.ceil,
    "clone": aten.clone,
    "cos": aten.cos,
    "erf": aten.erf,
    "exp": aten.exp,
    "exp2": aten.exp2,
    "expm1": aten.expm1,
    "floor": aten.floor,
    "gelu": aten.gelu,
    "neg": aten.neg,
    "gelu tanh": lambda x: aten.gelu(x, approximate="tanh"),
    "relu": aten.relu,
    "sigmoid": aten.sigmoid,
    "silu": aten.silu,
    "sin": aten.sin,
    "square": aten.square,
    "tanh": aten.tanh,
    **{name: getattr(aten, name) for name in ("asinh", "atan", "cosh", "sinh", "tan")},
    "trunc": aten.trunc,
    "isnan": aten.isnan,
    "logical_not": aten.logical_not,
    "half": lambda x: x.to(torch.float16),
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "double": lambda x: x.to(torch.float64),
    "int": lambda x: x.to(torch.int64),
    "bool": lambda x: x.to(torch.bool),
    "int32": lambda x: x.to(torch.int32),
    "add": lambda x: x + 0.1,
    "add alpha": lambda x: torch.add(x, 0.3, alpha=2),
    "sub": lambda x: x - 0.1,
    "rsub": lambda x: aten.rsub.Scalar(x, 0.7, 2),
    "mul": lambda x: x * 0.3,
    "div": lambda x: x / 0.7,
    "clamp": lambda x: x.clamp(-1, 0.3),
    "clamp low": lambda x: x.clamp(min=0.2),
    "clamp high": lambda x: aten.clamp_max(x, 0.2),
    "clamp_min": lambda x: aten.clamp_min(x, -0.4),
    "crossed": lambda x: x.clamp(1, -1),
    "threshold_backward": lambda x: aten.threshold_backward(x, x - 1, 0.5),
    "where": lambda x: torch.where(x > 0.2, x, -0.5),
    "masked_fill": lambda x: x.masked_fill(x < 0, -7.0),
    "div trunc": lambda x: torch.div(x, x.abs() + 0.3, rounding_mode="trunc").exp() + 1,
    **{f"pow {e}": lambda x, e=e: x.pow(e) for e in (0, 1, 2, 3, -1, -2)},
    **{n: lambda x, n=n: getattr(aten, n).Scalar(x, 0.0) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
}
POSITIVE = {
    "log": aten.log,
    "log10": aten.log10,
    "acosh": lambda x: aten.acosh(x + 1),
    "log1p": aten.log1p,
    "log2": aten.log2,
    "rsqrt": aten.rsqrt,
    "sqrt": aten.sqrt,
    "reciprocal": aten.reciprocal,
    **{f"pow {e}": lambda x, e=e: x.pow(e) for e in (0.5, -0.5, 1.3, 2.5)},
}
BINARY = {
    "add": torch.add,
    "add alpha": lambda x, y: torch.add(x, y, alpha=0.3),
    "sub": lambda x, y: torch.sub(x, y, alpha=3),
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
    **{n: lambda x, y, n=n: getattr(aten, n)(x * y / 8) for n in ("acos", "asin", "atanh")},
    "stack": lambda x, y: torch.stack([x, y * 2], 1),
    "aminmax": lambda x, y: torch.aminmax(x * y, dim=1, keepdim=True),
    "gelu_backward": aten.gelu_backward,
    "gelu_backward tanh": lambda x, y: aten.gelu_backward(x, y, approximate="tanh"),
    "silu_backward": aten.silu_backward,
    "sigmoid_backward": aten.sigmoid_backward,
    "tanh_backward": aten.tanh_backward,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp far": lambda x, y: torch.lerp(x, y, 0.8),
    "lerp tensor": lambda x, y: torch.lerp(x, y, x.sigmoid()),
    "where": lambda x, y: torch.where(x > y, x, y),
    "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, y + 5, value=0.5),
    "clamp": lambda x, y: x.clamp(y, y + 1),
    "row": lambda x, y: x * (y[1] + 4) + y[0],
    "column": lambda x, y: x * y[:, :1] - y[:, 2:3],
    "outer": lambda x, y: x[0, :, None] + y[None, 0, :],
    "logic": lambda x, y: ((x > 0) & (y > 0)) | torch.logical_xor(x > y, y > 0),
    "not": lambda x, y: ~(x > y),
    **{n: lambda x, y, n=n: getattr(torch, n)(x, y) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    "cat": lambda x, y: torch.cat([x, y], 1) * torch.stack([y, x]).flatten(0, 1).reshape(4, 12),
    "triangles": lambda x, y: x.tril(1) + y.triu(-1),
    "created": lambda x, y: torch.ones_like(x) * 2 + torch.full_like(y, 0.3) + torch.zeros_like(x),
    "slice_backward": lambda x, y: (
        aten.slice_backward(x[:, :3] * 2, [4, 6], 1, 3, 6, 1)
        + aten.slice_backward(y[::2], [4, 6], 0, 1, 4, 2)
    ),
    "cat of unequal parts": lambda x, y: torch.cat(
        [x.reshape(1, 24), y.reshape(1, 24).expand(2, 24) * 2, x.reshape(1, 24)]
    ),
    "cat with an empty part": lambda x, y: torch.cat([x[:0], x * y]),
    "cat of empty vectors and a matrix": lambda x, y: torch.cat([x[0, :0], y]),
    "slice_backward of an unequal part": lambda x, y: (
        aten.slice_backward(x.reshape(1, 24), [3, 24], 0, 1, 2, 1)
        + aten.slice_backward(y.expand(3, 4, 6).reshape(3, 24)[:2], [3, 24], 0, 1, 9, 1)
    ),
    "slice_backward of the last dim": lambda x, y: (
        aten.slice_backward(x[:, :4], [4, 7], 1, 2, 6, 1) + aten.slice_backward(y[:, 1:6], [4, 7], 1, 0, 5, 1)
    ),
    "slice_backward with a step": lambda x, y: (
        aten.slice_backward(x[:, :3], [4, 8], 1, 1, 8, 3) + aten.slice_backward(y[:, :2], [4, 8], 1, 0, 8, 5)
    ),
    "pad": lambda x, y: (
        aten.constant_pad_nd(x.reshape(2, 12)[:, None].expand(2, 2, 12).reshape(2, 24), [0, 0, 2, 1], -1.5)
        * y.reshape(1, 24)
    ),
    "pad by less than nothing": lambda x, y: aten.constant_pad_nd(
        x.reshape(1, 24).expand(3, 24) + y.reshape(1, 24), [0, 0, -1, 3]
    ),
    "select_backward": lambda x, y: aten.select_backward(x[0] * 2, [4, 6], 0, -2) + y,
    "parts of products": lambda x, y: ((x * y)[:, 3:]) - x[:, :3],
    "dropout_backward": lambda x, y: aten.native_dropout_backward(x, y > 0, 1.25),
}
ROWS = {
    "sum": lambda x, y: x.sum(1),
    "sum keepdim": lambda x, y: x.sum(1, keepdim=True) * y,
    "mean": lambda x, y: x.mean(-1),
    "amax": lambda x, y: x.amax(1),
    "amin": lambda x, y: x.amin(1, keepdim=True),
    "var": lambda x, y: x.var(1),
    "var_mean": lambda x, y: torch.var_mean(x, 1, correction=0, keepdim=True),
    "columns": lambda x, y: x.sum(0),
    "everything": lambda x, y: x.sum(),
    "softmax": lambda x, y: aten._softmax(x, -1, False),
    "log_softmax": lambda x, y: aten._log_softmax(x, -1, False),
    "any mean": lambda x, y: x.mean(),
    "softmax_backward": lambda x, y: aten._softmax_backward_data(x, y, -1, x.dtype),
    "log_softmax_backward": lambda x, y: aten._log_softmax_backward_data(x, y, -1, x.dtype),
    "layer_norm": lambda x, y: aten.native_layer_norm(x, [6], (y[1] + 4), y[0], 1e-5),
    "layer_norm plain": lambda x, y: aten.native_layer_norm(x, [6], None, None, 1e-5),
    "safe_softmax": lambda x, y: aten._safe_softmax(x, -1),
    "group_norm": lambda x, y: aten.native_group_norm(
        x.reshape(2, 4, 3), y[0, :4], y[1, :4], 2, 4, 3, 2, 1e-3
    ),
    "batch_norm": lambda x, y: aten._native_batch_norm_legit_no_training(
        x.reshape(2, 4, 3), y[0, :4], None, y[1, :4], y[2, :4] ** 2 + 1, 0.1, 1e-3
    )[0],
    "nll_loss_backward": lambda x, y: aten.nll_loss_backward(
        y[0, 0], x, (x[:, 0] > 0).to(torch.int64) * 5, None, 1, 0, y[1, 0] + 4
    ),
    "rms_norm": lambda x, y: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (y[1] + 4),
}
INTEGERS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: torch.sub(x, y, alpha=2),
    "mul": lambda x, y: x * 3,
    "and": torch.bitwise_and,
    "xor": torch.bitwise_xor,
    "or": torch.bitwise_or,
    "not": lambda x, y: torch.bitwise_not(x),
    "true div": torch.div,
    "floor": lambda x, y: aten.div.Scalar_mode(x, 3, rounding_mode="floor"),
    "sum": lambda x, y: x.sum(1),
    "amax": lambda x, y: x.amax(1),
    "compare": lambda x, y: x < y,
    "bools": lambda x, y: (x > 0) * (y > 0),
    "count": lambda x, y: (x > y).sum(1),
    "square": lambda x, y: x.pow(2),
    "float": lambda x, y: x * 0.5,
    "exp": lambda x, y: x.exp(),
    "clamp": lambda x, y: x.clamp(-1, 2),
    "bool sum": lambda x, y: (x > 0).to(torch.int64).sum(),
    "mixed": lambda x, y: x.to(torch.float32) + y,
    "maximum": torch.maximum,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "masked": lambda x, y: x.masked_fill(x > y, 9),
    "cat": lambda x, y: torch.cat([x, y]),
    "count up": lambda x, y: x + torch.arange(3, 15, 2, dtype=x.dtype),
    "triangle": lambda x, y: x.tril() + y,
    "floor of integers": lambda x, y: x.floor() + y.trunc() + y.ceil(),
}
