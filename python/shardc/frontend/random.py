"""PyTorch's random ops, built while tracing from one counter-based op so that their numbers depend on the seed alone.

Whatever draws numbers, from whichever function of torch, ends in one of the ops below; autograd and in-place forms are
dealt with by then. ``shardc::uniform`` makes numbers in [0, 1); the rest is the textbook: inverse CDF, Box-Muller,
exponential races for ``multinomial``, sorted keys for permutations. Samples of Poisson, binomial and gamma take as many
numbers as they need, in ops of their own. The values differ from torch's own generators, the distributions do not.

What PyTorch checks on values (probabilities between 0 and 1, weights that are not all 0) is not checked: a traced
program cannot raise. Arguments that are Python numbers are checked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

import shardc.runtime.sampling  # noqa: F401  (registers shardc::poisson and others)
from shardc.diagnostics.frontend import UnsupportedRandomOp
from shardc.frontend.random_stream import RandomStream, wide_dtype

Tensor = torch.Tensor
aten = torch.ops.aten


def random_table(stream: RandomStream) -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Decompositions of the random ops; they draw from ``stream``."""
    return {op: functools.partial(_drawn, op, function, stream) for op, function in _FUNCTIONS.items()}


def refuse_generators(name: str, values: Iterable[Any]) -> None:
    """Raises UnsupportedRandomOp if a call of ``name`` with these arguments draws from a generator of its own."""
    if any(isinstance(value, torch.Generator) for value in values):
        raise UnsupportedRandomOp(op=name, detail=": it has a generator of its own")


def _drawn(op: Any, function: Callable[..., Any], stream: RandomStream, *args: Any, **kwargs: Any) -> Any:
    refuse_generators(op._schema.name.removeprefix("aten::"), (*args, *kwargs.values()))
    kwargs.pop("generator", None)
    return function(stream, *args, **kwargs)


def _rand(stream: RandomStream, size: Sequence[int], *, dtype: torch.dtype | None = None, **place: Any) -> Tensor:
    return stream.uniform(size, dtype or torch.get_default_dtype())


def _rand_like(
    stream: RandomStream,
    self: Tensor,
    *,
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format = torch.preserve_format,
    **place: Any,
) -> Tensor:
    return _laid_out(stream.uniform(self.shape, dtype or self.dtype), self, memory_format)


def _randn(stream: RandomStream, size: Sequence[int], *, dtype: torch.dtype | None = None, **place: Any) -> Tensor:
    return stream.normal(size, dtype or torch.get_default_dtype())


def _randn_like(
    stream: RandomStream,
    self: Tensor,
    *,
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format = torch.preserve_format,
    **place: Any,
) -> Tensor:
    return _laid_out(stream.normal(self.shape, dtype or self.dtype), self, memory_format)


def _randint(stream: RandomStream, high: int, size: Sequence[int], **place: Any) -> Tensor:
    return _randint_low(stream, 0, high, size, **place)


def _randint_low(
    stream: RandomStream, low: int, high: int, size: Sequence[int], *, dtype: torch.dtype = torch.int64, **place: Any
) -> Tensor:
    torch._check(low < high, lambda: f"random integers from {low} to below {high}: there are none")
    return (stream.below(high - low, size) + low).to(dtype)


def _randint_like(stream: RandomStream, self: Tensor, high: int | Tensor, **options: Any) -> Tensor:
    if not isinstance(high, Tensor):
        return _randint_like_low(stream, self, 0, high, **options)
    drawn = (stream.uniform(self.shape, torch.float64) * high).floor()
    return _like_options(drawn, self, **options)


def _randint_like_low(stream: RandomStream, self: Tensor, low: int, high: int, **options: Any) -> Tensor:
    return _like_options(_randint_low(stream, low, high, self.shape), self, **options)


def _randperm(stream: RandomStream, n: int, *, dtype: torch.dtype = torch.int64, **place: Any) -> Tensor:
    """Places of sorted keys. Equal keys, of which 10**6 have one in 10**4 permutations, keep their order."""
    return torch.sort(stream.uniform([n], torch.float64), stable=True).indices.to(dtype)


def _bernoulli(stream: RandomStream, self: Tensor) -> Tensor:
    return _bernoulli_tensor(stream, self, self)


def _bernoulli_p(stream: RandomStream, self: Tensor, p: float = 0.5) -> Tensor:
    torch._check(0 <= p <= 1, lambda: f"bernoulli: p is {p}, not between 0 and 1")
    return _as(self, stream.uniform(self.shape) < p)


def _bernoulli_tensor(stream: RandomStream, self: Tensor, p: Tensor) -> Tensor:
    return _as(self, stream.uniform(self.shape, wide_dtype(p.dtype)) < p)


def _native_dropout(stream: RandomStream, input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    torch._check(0 <= p <= 1, lambda: f"dropout: p is {p}, not between 0 and 1")
    kept = stream.uniform(input.shape) >= p
    return input * kept * (0.0 if p == 1 else 1.0 / (1.0 - p)), kept


def _rrelu(
    stream: RandomStream,
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
) -> tuple[Tensor, Tensor]:
    """The result, and its slope at each element."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise.clone()
    drawn = stream.uniform(self.shape, wide_dtype(self.dtype)) * (upper - lower) + lower
    slope = torch.where(self <= 0, drawn.to(self.dtype), 1.0)
    return self * slope, slope


def _uniform(stream: RandomStream, self: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    torch._check(low <= high, lambda: f"uniform_: from {low} to {high}")
    drawn = stream.uniform(self.shape, self.dtype)
    if (low, high) == (0, 1):
        return _as(self, drawn)
    scaled = drawn * (high - low) + low
    return _as(self, torch.where(scaled < high, scaled, low))  # rounding may reach the excluded end


def _normal(stream: RandomStream, self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return _as(self, _normal_size(stream, mean, std, self.shape, dtype=self.dtype))


def _normal_size(
    stream: RandomStream,
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    **place: Any,
) -> Tensor:
    torch._check(std >= 0, lambda: f"normal: std is {std}, below 0")
    return stream.normal(size, dtype or torch.get_default_dtype()) * std + mean


def _normal_tensors(stream: RandomStream, mean: Tensor | float, std: Tensor | float = 1.0) -> Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    return (stream.normal(shape, tensors[0].dtype) * std + mean).to(tensors[0].dtype)


def _log_normal(stream: RandomStream, self: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    torch._check(std > 0, lambda: f"log_normal_: std is {std}, not above 0")
    return _as(self, torch.exp(stream.normal(self.shape, wide_dtype(self.dtype)) * std + mean))


def _exponential(stream: RandomStream, self: Tensor, lambd: float = 1.0) -> Tensor:
    torch._check(lambd > 0, lambda: f"exponential_: lambda is {lambd}, not above 0")
    return _as(self, _waiting_times(stream, self.shape, wide_dtype(self.dtype)) * (1.0 / lambd))


def _waiting_times(stream: RandomStream, size: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Exponential numbers of rate 1, above 0 and finite."""
    return torch.log1p(stream.open_uniform(size, dtype).neg()).neg()


def _cauchy(stream: RandomStream, self: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    torch._check(sigma > 0, lambda: f"cauchy_: sigma is {sigma}, not above 0")
    angle = (stream.open_uniform(self.shape, wide_dtype(self.dtype)) - 0.5) * math.pi
    return _as(self, torch.tan(angle) * sigma + median)


def _geometric(stream: RandomStream, self: Tensor, p: float) -> Tensor:
    torch._check(0 < p < 1, lambda: f"geometric_: p is {p}, not between 0 and 1")
    waited = _waiting_times(stream, self.shape, wide_dtype(self.dtype))
    return _as(self, torch.ceil(waited * (-1.0 / math.log1p(-p))))


def _random(stream: RandomStream, self: Tensor) -> Tensor:
    """All integers from 0 that the dtype can hold exactly."""
    return _random_from(stream, self, 0, None)


def _random_to(stream: RandomStream, self: Tensor, to: int) -> Tensor:
    return _random_from(stream, self, 0, to)


def _random_from(stream: RandomStream, self: Tensor, low: int, to: int | None) -> Tensor:
    return _as(self, _randint_low(stream, low, _most(self.dtype) + 1 if to is None else to, self.shape))


def _most(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return 1
    return round(2 / torch.finfo(dtype).eps) if dtype.is_floating_point else torch.iinfo(dtype).max


def _multinomial(stream: RandomStream, self: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    """Indices [..., num_samples] by weights [..., n]. A weight of 0 is never drawn while there are others."""
    categories, weights = self.shape[-1], self.double()
    torch._check(0 < num_samples, lambda: f"multinomial: cannot draw {num_samples} samples")
    torch._check(
        replacement or num_samples <= categories,
        lambda: f"multinomial: cannot draw {num_samples} of {categories} categories without replacement",
    )
    if num_samples > 1 and replacement:
        # Rounding must not make a step where the weight is 0.
        ends = torch.where(weights > 0, weights.cumsum(-1), 0.0).cummax(-1).values
        wanted = stream.uniform([*self.shape[:-1], num_samples], torch.float64) * ends[..., -1:]
        return torch.searchsorted(ends, wanted, right=True).clamp(max=categories - 1)
    # The first of independent exponential clocks to ring is i with a chance of weight i.
    rings = weights.log() - _waiting_times(stream, self.shape, torch.float64).log()
    return rings.argmax(-1, keepdim=True) if num_samples == 1 else rings.topk(num_samples).indices


def _poisson(stream: RandomStream, self: Tensor) -> Tensor:
    return torch.ops.shardc.poisson(self, *_place(stream, self.shape))


def _binomial(stream: RandomStream, count: Tensor, prob: Tensor) -> Tensor:
    counts, probs = torch.broadcast_tensors(count, prob)
    return torch.ops.shardc.binomial(counts, probs, *_place(stream, counts.shape))


def _standard_gamma(stream: RandomStream, self: Tensor) -> Tensor:
    return torch.ops.shardc.standard_gamma(self, *_place(stream, self.shape))


def _sample_dirichlet(stream: RandomStream, self: Tensor) -> Tensor:
    parts = _standard_gamma(stream, self.double())
    return (parts / parts.sum(-1, keepdim=True)).clamp(min=torch.finfo(self.dtype).tiny).to(self.dtype)


def _place(stream: RandomStream, shape: Sequence[int]) -> tuple[Tensor, int, list[int], list[int]]:
    return stream.seed, stream.next(), [0] * len(shape), list(shape)


def _like_options(
    made: Tensor,
    self: Tensor,
    *,
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format = torch.preserve_format,
    **place: Any,
) -> Tensor:
    return _laid_out(made.to(dtype or self.dtype), self, memory_format)


def _as(self: Tensor, made: Tensor) -> Tensor:
    """What an op that fills ``self`` gives."""
    return _laid_out(made.to(self.dtype), self, torch.preserve_format)


def _laid_out(made: Tensor, like: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Views that follow were checked against the strides that torch gives."""
    wanted = torch.empty_like(like, dtype=made.dtype, memory_format=memory_format)
    return made if wanted.stride() == made.stride() else aten.copy(wanted, made)


_FUNCTIONS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten._sample_dirichlet.default: _sample_dirichlet,
    aten._standard_gamma.default: _standard_gamma,
    aten.bernoulli.Tensor: _bernoulli_tensor,
    aten.bernoulli.default: _bernoulli,
    aten.bernoulli.p: _bernoulli_p,
    aten.binomial.default: _binomial,
    aten.cauchy.default: _cauchy,
    aten.exponential.default: _exponential,
    aten.geometric.default: _geometric,
    aten.log_normal.default: _log_normal,
    aten.multinomial.default: _multinomial,
    aten.native_dropout.default: _native_dropout,
    aten.normal.Tensor_Tensor: _normal_tensors,
    aten.normal.Tensor_float: _normal_tensors,
    aten.normal.float_Tensor: _normal_tensors,
    aten.normal.float_float: _normal_size,
    aten.normal_functional.default: _normal,
    aten.poisson.default: _poisson,
    aten.rand.default: _rand,
    aten.rand.generator: _rand,
    aten.rand_like.default: _rand_like,
    aten.rand_like.generator: _rand_like,
    aten.randint.default: _randint,
    aten.randint.generator: _randint,
    aten.randint.low: _randint_low,
    aten.randint.low_generator: _randint_low,
    aten.randint_like.Tensor: _randint_like,
    aten.randint_like.Tensor_generator: _randint_like,
    aten.randint_like.default: _randint_like,
    aten.randint_like.generator: _randint_like,
    aten.randint_like.low_dtype: _randint_like_low,
    aten.randint_like.low_generator_dtype: _randint_like_low,
    aten.randn.default: _randn,
    aten.randn.generator: _randn,
    aten.randn_like.default: _randn_like,
    aten.randn_like.generator: _randn_like,
    aten.random.default: _random,
    aten.random.to: _random_to,
    getattr(aten.random, "from"): _random_from,
    aten.randperm.default: _randperm,
    aten.randperm.generator: _randperm,
    aten.rrelu_with_noise_functional.default: _rrelu,
    aten.uniform.default: _uniform,
}
