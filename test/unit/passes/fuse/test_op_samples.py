"""PyTorch's own samples of the ops that lower, each op a kernel by itself:
broadcasts, scalars, mixed and odd shapes.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from shardc.backends.eager.interpreter import run
from shardc.passes.fuse.kern_fuse import fuse_module

from .conftest import assert_near, traced

SAMPLES = 4
FLOATS, INTEGERS = (torch.float32, torch.bfloat16), (torch.int64, torch.bool)
OPS = {
    **dict.fromkeys(["add", "mul", "maximum", "where", "masked_fill", "eq", "sum"], FLOATS + INTEGERS),
    **dict.fromkeys(["cat", "tril", "triu"], (torch.float32, torch.int64)),
    **dict.fromkeys(["clamp", "amax"], (*FLOATS, torch.int64)),
    **dict.fromkeys(
        ["bitwise_and", "logical_xor", "logical_not", "bitwise_not", "exp", "neg", "abs"], INTEGERS[:1]
    ),
    **dict.fromkeys(
        ["sub", "div", "lerp", "addcmul", "addcdiv", "pow", "mean", "var", "softmax", "log_softmax"], FLOATS
    ),
    **dict.fromkeys(
        [
            "nn.functional.group_norm",
            "nn.functional.layer_norm",
            "nn.functional.gelu",
            "nn.functional.silu",
            "sigmoid",
            "rsqrt",
        ],
        FLOATS,
    ),
    **dict.fromkeys(
        [
            "gather",
            "index_select",
            "nn.functional.embedding",
            "nn.functional.nll_loss",
            "nn.functional.cross_entropy",
        ],
        FLOATS,
    ),
    **dict.fromkeys(["mm", "bmm", "addmm", "baddbmm", "nn.functional.linear"], FLOATS),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, dtypes in OPS.items() for d in dtypes], ids=str)
def test_samples(name: str, dtype: torch.dtype) -> None:
    op = next(op for op in op_db if op.name == name)
    made = 0
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))

        def call(
            *tensors: torch.Tensor, leaves: list[Any] = leaves, tree: Any = tree, op: Any = op
        ) -> list[torch.Tensor]:
            rest = iter(tensors)
            given = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            x, args, kwargs = pytree.tree_unflatten(given, tree)
            return [r for r in pytree.tree_leaves(op(x, *args, **kwargs)) if isinstance(r, torch.Tensor)]

        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        module = traced(call, tensors)
        fuse_module(module, "eager", lone=True, matmuls="generated")
        module.operation.verify()
        made += str(module).count('"kern.kernel"')
        for [found], expected in zip(run(module, [[t] for t in tensors]), call(*tensors), strict=True):
            assert_near(found, expected)
    assert made
