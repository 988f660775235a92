"""Random functions of torch, built from one counter-based op so that their numbers depend on the seed alone.

``shardc::uniform(seed, op, size, offsets, global_size, dtype=)`` gives numbers in [0, 1) from Philox, keyed
by the seed and the number of the call in the trace, and counted by the element's index in the whole tensor.
Any shard of the tensor can be made anywhere. The transforms are the textbook ones: inverse CDF, Box-Muller,
argsort for permutations. The values differ from torch's own generators, the distributions do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import shardc.runtime.random  # noqa: F401  (registers shardc::uniform)
from shardc.diagnostics.frontend import UnsupportedRandomOp

# What `alpha_dropout` sets dropped values to: minus scale times alpha of SELU (Klambauer et al. 2017, section
# 2).
SELU_FLOOR = -1.0507009873554805 * 1.6732632423543772


class RandomStream:
    """Numbers from one seed; each draw takes the next op number.

    ``open`` is false while no draw may happen.
    """

    def __init__(self, seed: torch.Tensor) -> None:
        self.seed = seed
        self.op = 0
        self.open = True

    def uniform(self, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Numbers in [0, 1); raises UnsupportedRandomOp while a forward is being recomputed in the
        backward.
        """
        if not self.open:
            detail = ": the forward is run again during backward (activation checkpointing)"
            raise UnsupportedRandomOp(op="a random op", detail=detail)
        op, size = self.op, [int(n) for n in size]
        self.op += 1
        return torch.ops.shardc.uniform(self.seed, op, size, [0] * len(size), size, dtype=dtype)

    def normal(self, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Standard normal numbers by Box-Muller; drawn in f32 at least."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        radius = torch.sqrt(-2.0 * torch.log(1.0 - self.uniform(size, wide)))
        return (radius * torch.cos(2.0 * math.pi * self.uniform(size, wide))).to(dtype)


def _dropout(
    stream: RandomStream, input: torch.Tensor, p: float = 0.5, training: bool = True
) -> torch.Tensor:
    return _scaled_mask(stream, input, p, input.shape) if training and p > 0 else input


def _feature_dropout(
    stream: RandomStream, input: torch.Tensor, p: float = 0.5, training: bool = True
) -> torch.Tensor:
    if not training or p == 0:
        return input
    return _scaled_mask(stream, input, p, [*input.shape[:2], *[1] * (input.dim() - 2)])


def _native_dropout(
    stream: RandomStream, input: torch.Tensor, p: float, train: bool | None = True
) -> tuple[torch.Tensor, torch.Tensor]:
    if train is False or p == 0:
        return input, torch.ones_like(input, dtype=torch.bool)
    kept = stream.uniform(input.shape) >= p
    return input * (kept.to(input.dtype) * _keep_scale(p)), kept


def _scaled_mask(stream: RandomStream, input: torch.Tensor, p: float, size: Sequence[int]) -> torch.Tensor:
    kept = stream.uniform(size) >= p
    return input * (kept.to(input.dtype) * _keep_scale(p))


def _keep_scale(p: float) -> float:
    return 0.0 if p == 1 else 1.0 / (1.0 - p)


def _alpha_dropout(
    stream: RandomStream, input: torch.Tensor, p: float = 0.5, training: bool = False
) -> torch.Tensor:
    return _alpha_masked(stream, input, p, input.shape) if training and p > 0 else input


def _feature_alpha_dropout(
    stream: RandomStream, input: torch.Tensor, p: float = 0.5, training: bool = False
) -> torch.Tensor:
    size = [*input.shape[:2], *[1] * (input.dim() - 2)]
    return _alpha_masked(stream, input, p, size) if training and p > 0 else input


def _alpha_masked(stream: RandomStream, input: torch.Tensor, p: float, size: Sequence[int]) -> torch.Tensor:
    """Keeps mean and variance of SELU activations: a (x d + floor (1 - d)) + b (Klambauer et al.

    2017, eq. 5).
    """
    if p == 1:
        return input * 0.0
    kept = (stream.uniform(size) >= p).to(input.dtype)
    scale = ((1.0 - p) * (1.0 + p * SELU_FLOOR**2)) ** -0.5
    return (input * kept + SELU_FLOOR * (1.0 - kept)) * scale - scale * p * SELU_FLOOR


def _rand(stream: RandomStream, *size: Any, **kwargs: Any) -> torch.Tensor:
    return stream.uniform(_size(size, kwargs), _factory_dtype("rand", kwargs))


def _randn(stream: RandomStream, *size: Any, **kwargs: Any) -> torch.Tensor:
    return stream.normal(_size(size, kwargs), _factory_dtype("randn", kwargs))


def _rand_like(stream: RandomStream, input: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return stream.uniform(input.shape, _factory_dtype("rand_like", kwargs, input.dtype))


def _randn_like(stream: RandomStream, input: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return stream.normal(input.shape, _factory_dtype("randn_like", kwargs, input.dtype))


def _randint(stream: RandomStream, *args: Any, **kwargs: Any) -> torch.Tensor:
    high, size = kwargs.pop("high", None), kwargs.pop("size", None)
    bounds = [*([kwargs.pop("low")] if "low" in kwargs else []), *args]
    size = bounds.pop() if size is None else size
    high = bounds.pop() if high is None else high
    dtype = _factory_dtype("randint", kwargs, torch.int64)
    return _integers(stream, bounds[0] if bounds else 0, high, size, dtype)


def _randint_like(stream: RandomStream, input: torch.Tensor, *bounds: int, **kwargs: Any) -> torch.Tensor:
    low, high = kwargs.pop("low", 0), kwargs.pop("high", None)
    low, high = (bounds if len(bounds) == 2 else (low, bounds[0])) if bounds else (low, high)
    return _integers(stream, low, high, input.shape, _factory_dtype("randint_like", kwargs, input.dtype))


def _integers(
    stream: RandomStream, low: int, high: int, size: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    return (stream.uniform(size, torch.float64) * (high - low)).floor().to(dtype) + low


def _randperm(stream: RandomStream, n: int, **kwargs: Any) -> torch.Tensor:
    dtype = _factory_dtype("randperm", kwargs, torch.int64)
    return torch.argsort(stream.uniform([n], torch.float64)).to(dtype)


def _bernoulli(stream: RandomStream, input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    _no_generator("bernoulli", kwargs)
    p = kwargs.get("p", args[0] if args else input)
    return (stream.uniform(input.shape, _wide(input)) < p).to(input.dtype)


def _bernoulli_(stream: RandomStream, input: torch.Tensor, p: Any = 0.5, **kwargs: Any) -> torch.Tensor:
    _no_generator("bernoulli_", kwargs)
    return input.copy_(stream.uniform(input.shape) < p)


def _uniform_(
    stream: RandomStream, input: torch.Tensor, a: float = 0.0, b: float = 1.0, **kwargs: Any
) -> torch.Tensor:
    a, b = kwargs.pop("from", a), kwargs.pop("to", b)
    _no_generator("uniform_", kwargs)
    return input.copy_(stream.uniform(input.shape, _wide(input)) * (b - a) + a)


def _normal_(
    stream: RandomStream, input: torch.Tensor, mean: float = 0.0, std: float = 1.0, **kwargs: Any
) -> torch.Tensor:
    _no_generator("normal_", kwargs)
    return input.copy_(stream.normal(input.shape, _wide(input)) * std + mean)


def _exponential_(
    stream: RandomStream, input: torch.Tensor, lambd: float = 1.0, **kwargs: Any
) -> torch.Tensor:
    _no_generator("exponential_", kwargs)
    return input.copy_(torch.log(1.0 - stream.uniform(input.shape, _wide(input))) * (-1.0 / lambd))


def _rrelu(
    stream: RandomStream,
    input: torch.Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    _no_generator("rrelu", kwargs)
    slope: Any = (lower + upper) / 2
    if training:
        slope = stream.uniform(input.shape, _wide(input)).to(input.dtype) * (upper - lower) + lower
    return torch.where(input >= 0, input, input * slope)


def _in_place(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def replacement(stream: RandomStream, input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return input.copy_(function(stream, input, *args, **kwargs))

    return replacement


def _refuse(name: str) -> Callable[..., Any]:
    def replacement(stream: RandomStream, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedRandomOp(op=name, detail="")

    return replacement


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _size(size: tuple, kwargs: dict[str, Any]) -> Sequence[int]:
    size = size or (kwargs.pop("size"),)
    return size[0] if len(size) == 1 and not isinstance(size[0], int) else size


def _factory_dtype(name: str, kwargs: dict[str, Any], default: torch.dtype | None = None) -> torch.dtype:
    _no_generator(name, kwargs)
    return kwargs.get("dtype") or default or torch.get_default_dtype()


def _no_generator(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs.get("generator") is not None:
        raise UnsupportedRandomOp(op=name, detail=": it has a generator of its own")


_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "dropout": _dropout,
    "dropout_": _in_place(_dropout),
    "native_dropout": _native_dropout,
    "feature_dropout": _feature_dropout,
    "feature_dropout_": _in_place(_feature_dropout),
    "alpha_dropout": _alpha_dropout,
    "alpha_dropout_": _in_place(_alpha_dropout),
    "feature_alpha_dropout": _feature_alpha_dropout,
    "feature_alpha_dropout_": _in_place(_feature_alpha_dropout),
    "rand": _rand,
    "randn": _randn,
    "rand_like": _rand_like,
    "randn_like": _randn_like,
    "randint": _randint,
    "randint_like": _randint_like,
    "randperm": _randperm,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_,
    "uniform_": _uniform_,
    "normal_": _normal_,
    "exponential_": _exponential_,
    "rrelu": _rrelu,
    "rrelu_": _in_place(_rrelu),
    **{name: _refuse(name) for name in ("multinomial", "poisson", "binomial", "normal")},
    **{name: _refuse(name) for name in ("cauchy_", "geometric_", "log_normal_", "random_")},
}


def _functions() -> dict[Any, Callable[..., Any]]:
    homes = (torch, torch._C._VariableFunctions, torch.Tensor)
    return {
        getattr(home, name): function
        for name, function in _REPLACEMENTS.items()
        for home in homes
        if hasattr(home, name)
    }


RANDOM_FUNCTIONS: dict[Any, Callable[..., Any]] = _functions()
