"""The random ops of a trace: every op of PyTorch that draws numbers, and what is traced in its place.

Whatever draws numbers, from whichever function of torch, ends in one of the ops of the table; autograd and
in-place forms are dealt with by then. So the optimizer's and ``torch.distributions``' draws are covered as
dropout's are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from shardc.diagnostics.frontend import UnsupportedRandomOp
from shardc.frontend.operators import draws
from shardc.frontend.step.random_stream import RandomStream
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten


def random_table(stream: RandomStream) -> dict[OpOverload, Callable[..., Any]]:
    """Decompositions of the random ops; they draw from ``stream``."""
    return {op: functools.partial(_drawn, op, function, stream) for op, function in _FUNCTIONS.items()}


def refuse_generators(function: Any, values: Iterable[Any]) -> None:
    """Raises UnsupportedRandomOp if a call with these arguments draws from a generator of its own."""
    if any(isinstance(value, torch.Generator) for value in values):
        name = getattr(function, "__name__", str(function))
        raise UnsupportedRandomOp(op=name, detail=": it has a generator of its own")


def _drawn(op: Any, function: Callable[..., Any], stream: RandomStream, *args: Any, **kwargs: Any) -> Any:
    refuse_generators(op, (*args, *kwargs.values()))
    kwargs.pop("generator", None)
    return function(stream, *args, **kwargs)


_FUNCTIONS: dict[OpOverload, Callable[..., Any]] = {
    aten._sample_dirichlet.default: draws.sample_dirichlet,
    aten._standard_gamma.default: draws.standard_gamma,
    aten.bernoulli.Tensor: draws.bernoulli_tensor,
    aten.bernoulli.default: draws.bernoulli,
    aten.bernoulli.p: draws.bernoulli_p,
    aten.binomial.default: draws.binomial,
    aten.cauchy.default: draws.cauchy,
    aten.exponential.default: draws.exponential,
    aten.geometric.default: draws.geometric,
    aten.log_normal.default: draws.log_normal,
    aten.multinomial.default: draws.multinomial,
    aten.native_dropout.default: draws.native_dropout,
    aten.normal.Tensor_Tensor: draws.normal_tensors,
    aten.normal.Tensor_float: draws.normal_tensors,
    aten.normal.float_Tensor: draws.normal_tensors,
    aten.normal.float_float: draws.normal_size,
    aten.normal_functional.default: draws.normal,
    aten.poisson.default: draws.poisson,
    aten.rand.default: draws.rand,
    aten.rand.generator: draws.rand,
    aten.rand_like.default: draws.rand_like,
    aten.rand_like.generator: draws.rand_like,
    aten.randint.default: draws.randint,
    aten.randint.generator: draws.randint,
    aten.randint.low: draws.randint_low,
    aten.randint.low_generator: draws.randint_low,
    aten.randint_like.Tensor: draws.randint_like,
    aten.randint_like.Tensor_generator: draws.randint_like,
    aten.randint_like.default: draws.randint_like,
    aten.randint_like.generator: draws.randint_like,
    aten.randint_like.low_dtype: draws.randint_like_low,
    aten.randint_like.low_generator_dtype: draws.randint_like_low,
    aten.randn.default: draws.randn,
    aten.randn.generator: draws.randn,
    aten.randn_like.default: draws.randn_like,
    aten.randn_like.generator: draws.randn_like,
    aten.random.default: draws.random,
    aten.random.to: draws.random_to,
    getattr(aten.random, "from"): draws.random_from,
    aten.randperm.default: draws.randperm,
    aten.randperm.generator: draws.randperm,
    aten.rrelu_with_noise_functional.default: draws.rrelu,
    aten.uniform.default: draws.uniform,
}
