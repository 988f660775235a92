"""PyTorch's random ops based on one counter-based op, so that their numbers depend on the seed alone.

Every random function of torch ends in one of the ops replaced here, after autograd and in-place forms are
resolved. This covers draws of optimizers and of ``torch.distributions``.

``shardc::uniform`` makes numbers in [0, 1). The others use textbook methods: inverse CDF, Box-Muller,
exponential races for ``multinomial``, sorted keys for permutations. Samples of Poisson, binomial and gamma
take a variable count of numbers, in ops of their own. Values differ from torch's generators; distributions do
not.

Each function takes the stream and the arguments of its ATen ops. ``self`` gives shape, dtype and strides.
Placement options are ignored, since the program may run on another device than the trace. Python numbers are
checked as in torch, with RuntimeError. Torch's checks of values (for example, that not all weights are 0) are
left out, because a traced program cannot raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

import shardc.runtime.operators.sampling  # noqa: F401  (registers shardc::poisson and others)
from shardc.diagnostics.frontend import UnsupportedRandomOp
from shardc.frontend.operators import Table
from shardc.frontend.step.random_stream import RandomStream, wide_dtype
from shardc.runtime.torch_private import OpOverload, check

Tensor = torch.Tensor
Dtype = torch.dtype
Size = Sequence[int]
aten = torch.ops.aten
Draw = TypeVar("Draw", bound=Callable[..., object])

_DRAWS: Table = {}


def random_table(stream: RandomStream) -> Table:
    """Return decompositions of the random ops that draw from ``stream``."""
    return {op: partial(_drawn, op, function, stream) for op, function in _DRAWS.items()}


def refuse_generators(function: object, values: Iterable[object]) -> None:
    """Raise UnsupportedRandomOp if a call with these arguments uses a generator of its own."""
    if any(isinstance(value, torch.Generator) for value in values):
        name = getattr(function, "__name__", str(function))
        raise UnsupportedRandomOp(op=name, detail=": it has a generator of its own")


def _drawn(
    op: OpOverload, function: Callable[..., object], stream: RandomStream, *args: object, **kwargs: object
) -> object:
    refuse_generators(op, (*args, *kwargs.values()))
    kwargs.pop("generator", None)
    return function(stream, *args, **kwargs)


def _replaces(*ops: OpOverload) -> Callable[[Draw], Draw]:
    def register(function: Draw) -> Draw:
        _DRAWS.update(dict.fromkeys(ops, function))
        return function

    return register


@_replaces(aten.rand.default, aten.rand.generator)
def rand(stream: RandomStream, size: Size, *, dtype: Dtype | None = None, **place: object) -> Tensor:
    return stream.uniform(size, dtype or torch.get_default_dtype())


@_replaces(aten.rand_like.default, aten.rand_like.generator)
def rand_like(stream: RandomStream, self: Tensor, *, dtype: Dtype | None = None, **options: Any) -> Tensor:
    return _like_options(stream.uniform(self.shape, dtype or self.dtype), self, dtype=dtype, **options)


@_replaces(aten.randn.default, aten.randn.generator)
def randn(stream: RandomStream, size: Size, *, dtype: Dtype | None = None, **place: object) -> Tensor:
    return stream.normal(size, dtype or torch.get_default_dtype())


@_replaces(aten.randn_like.default, aten.randn_like.generator)
def randn_like(stream: RandomStream, self: Tensor, *, dtype: Dtype | None = None, **options: Any) -> Tensor:
    return _like_options(stream.normal(self.shape, dtype or self.dtype), self, dtype=dtype, **options)


@_replaces(aten.randint.default, aten.randint.generator)
def randint(
    stream: RandomStream, high: int, size: Size, *, dtype: Dtype = torch.int64, **place: object
) -> Tensor:
    return randint_low(stream, 0, high, size, dtype=dtype)


@_replaces(aten.randint.low, aten.randint.low_generator)
def randint_low(
    stream: RandomStream, low: int, high: int, size: Size, *, dtype: Dtype = torch.int64, **place: object
) -> Tensor:
    check(low < high, lambda: f"random integers from {low} to below {high}: there are none")
    return stream.integers(low, high, size).to(dtype)


@_replaces(
    aten.randint_like.Tensor,
    aten.randint_like.Tensor_generator,
    aten.randint_like.default,
    aten.randint_like.generator,
)
def randint_like(stream: RandomStream, self: Tensor, high: int | Tensor, **options: Any) -> Tensor:
    if not isinstance(high, Tensor):
        return randint_like_low(stream, self, 0, high, **options)
    return _like_options((stream.uniform(self.shape, torch.float64) * high).floor(), self, **options)


@_replaces(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype)
def randint_like_low(stream: RandomStream, self: Tensor, low: int, high: int, **options: Any) -> Tensor:
    return _like_options(randint_low(stream, low, high, self.shape), self, **options)


@_replaces(aten.randperm.default, aten.randperm.generator)
def randperm(stream: RandomStream, n: int, *, dtype: Dtype = torch.int64, **place: object) -> Tensor:
    """Return ranks of random keys.

    Equal keys keep their order; with n = 10**6 one in 10**4 permutations has some.
    """
    return torch.sort(stream.uniform([n], torch.float64), stable=True).indices.to(dtype)


@_replaces(aten.bernoulli.p)
def bernoulli_p(stream: RandomStream, self: Tensor, p: float = 0.5) -> Tensor:
    check(0 <= p <= 1, lambda: f"bernoulli: p is {p}, not between 0 and 1")
    return _as(self, stream.uniform(self.shape) < p)


@_replaces(aten.bernoulli.default, aten.bernoulli.Tensor)
def bernoulli(stream: RandomStream, self: Tensor, p: Tensor | None = None) -> Tensor:
    chances = self if p is None else p
    return _as(self, stream.uniform(self.shape, wide_dtype(chances.dtype)) < chances)


@_replaces(aten.native_dropout.default)
def native_dropout(
    stream: RandomStream, input: Tensor, p: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    check(0 <= p <= 1, lambda: f"dropout: p is {p}, not between 0 and 1")
    kept = stream.uniform(input.shape) < 1 - p  # equal to PyTorch's dropout with bernoulli_
    return input * kept * (0.0 if p == 1 else 1.0 / (1.0 - p)), kept


@_replaces(aten.rrelu_with_noise_functional.default)
def rrelu(
    stream: RandomStream,
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the result, and the slope of each element."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise.clone()
    drawn = stream.uniform(self.shape, wide_dtype(self.dtype)) * (upper - lower) + lower
    slope = torch.where(self <= 0, drawn.to(self.dtype), 1.0)
    return self * slope, slope


@_replaces(aten.uniform.default)
def uniform(stream: RandomStream, self: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    check(low <= high, lambda: f"uniform_: from {low} to {high}")
    drawn = stream.uniform(self.shape, self.dtype)
    if (low, high) == (0, 1):
        return _as(self, drawn)
    scaled = drawn * (high - low) + low
    return _as(self, torch.where(scaled < high, scaled, low))  # rounding may reach the excluded end


@_replaces(aten.normal_functional.default)
def normal(stream: RandomStream, self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return _as(self, normal_size(stream, mean, std, self.shape, dtype=self.dtype))


@_replaces(aten.normal.float_float)
def normal_size(
    stream: RandomStream, mean: float, std: float, size: Size, *, dtype: Dtype | None = None, **place: object
) -> Tensor:
    check(std >= 0, lambda: f"normal: std is {std}, below 0")
    return stream.normal(size, dtype or torch.get_default_dtype()) * std + mean


@_replaces(aten.normal.Tensor_Tensor, aten.normal.Tensor_float, aten.normal.float_Tensor)
def normal_tensors(stream: RandomStream, mean: Tensor | float, std: Tensor | float = 1.0) -> Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    return (stream.normal(shape, tensors[0].dtype) * std + mean).to(tensors[0].dtype)


@_replaces(aten.log_normal.default)
def log_normal(stream: RandomStream, self: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    check(std > 0, lambda: f"log_normal_: std is {std}, not above 0")
    return _as(self, torch.exp(stream.normal(self.shape, wide_dtype(self.dtype)) * std + mean))


@_replaces(aten.exponential.default)
def exponential(stream: RandomStream, self: Tensor, lambd: float = 1.0) -> Tensor:
    check(lambd > 0, lambda: f"exponential_: lambda is {lambd}, not above 0")
    made = _waiting_times(stream, self.shape, wide_dtype(self.dtype)) * (1.0 / lambd)
    limits = torch.finfo(self.dtype)
    return _as(self, made.clamp(min=limits.smallest_normal * limits.eps))  # may round to 0 in f16


def _waiting_times(stream: RandomStream, size: Size, dtype: Dtype) -> Tensor:
    """Return exponential numbers of rate 1, above 0 and finite."""
    return torch.log1p(stream.open_uniform(size, dtype).neg()).neg()


@_replaces(aten.cauchy.default)
def cauchy(stream: RandomStream, self: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    check(sigma > 0, lambda: f"cauchy_: sigma is {sigma}, not above 0")
    angle = (stream.open_uniform(self.shape, wide_dtype(self.dtype)) - 0.5) * math.pi
    return _as(self, torch.tan(angle) * sigma + median)


@_replaces(aten.geometric.default)
def geometric(stream: RandomStream, self: Tensor, p: float) -> Tensor:
    check(0 < p < 1, lambda: f"geometric_: p is {p}, not between 0 and 1")
    waited = _waiting_times(stream, self.shape, wide_dtype(self.dtype))
    return _as(self, torch.ceil(waited * (-1.0 / math.log1p(-p))))


@_replaces(aten.random.default, aten.random.to)
def random(stream: RandomStream, self: Tensor, to: int | None = None) -> Tensor:
    """Return integers from 0 to below ``to``, or up to the largest that the dtype represents exactly."""
    return random_from(stream, self, 0, to)


@_replaces(getattr(aten.random, "from"))
def random_from(stream: RandomStream, self: Tensor, low: int, to: int | None) -> Tensor:
    return _as(self, randint_low(stream, low, _most(self.dtype) + 1 if to is None else to, self.shape))


def _most(dtype: Dtype) -> int:
    if dtype == torch.bool:
        return 1
    return round(2 / torch.finfo(dtype).eps) if dtype.is_floating_point else torch.iinfo(dtype).max


@_replaces(aten.multinomial.default)
def multinomial(stream: RandomStream, self: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    """Return indices [..., num_samples] drawn by weights [..., n]; weight 0 is drawn only if all are 0."""
    categories, weights = self.shape[-1], self.double()
    check(num_samples > 0, lambda: f"multinomial: cannot draw {num_samples} samples")
    lack = f"multinomial: cannot draw {num_samples} of {categories} categories without replacement"
    check(replacement or num_samples <= categories, lambda: lack)
    if num_samples > 1 and replacement:
        # Rounding must not make a step where the weight is 0.
        ends = torch.where(weights > 0, weights.cumsum(-1), 0.0).cummax(-1).values
        wanted = stream.uniform([*self.shape[:-1], num_samples], torch.float64) * ends[..., -1:]
        return torch.searchsorted(ends, wanted, right=True).clamp(max=categories - 1)
    # Of independent exponential clocks, clock i rings first with a probability proportional to weight i.
    rings = weights.log() - _waiting_times(stream, self.shape, torch.float64).log()
    return rings.argmax(-1, keepdim=True) if num_samples == 1 else rings.topk(num_samples).indices


@_replaces(aten.poisson.default)
def poisson(stream: RandomStream, self: Tensor) -> Tensor:
    return torch.ops.shardc.poisson(self, *_place(stream, self.shape))


@_replaces(aten.binomial.default)
def binomial(stream: RandomStream, count: Tensor, prob: Tensor) -> Tensor:
    counts, probs = torch.broadcast_tensors(count, prob)
    return torch.ops.shardc.binomial(counts, probs, *_place(stream, counts.shape))


@_replaces(aten._standard_gamma.default)
def standard_gamma(stream: RandomStream, self: Tensor) -> Tensor:
    return torch.ops.shardc.standard_gamma(self, *_place(stream, self.shape))


@_replaces(aten._sample_dirichlet.default)
def sample_dirichlet(stream: RandomStream, self: Tensor) -> Tensor:
    parts = standard_gamma(stream, self.double())
    return (parts / parts.sum(-1, keepdim=True)).clamp(min=torch.finfo(self.dtype).tiny).to(self.dtype)


def _place(stream: RandomStream, shape: Size) -> tuple[Tensor | None, int, list[int], list[int]]:
    return stream.seed, stream.next(), [0] * len(shape), list(shape)


def _like_options(
    made: Tensor,
    self: Tensor,
    *,
    dtype: Dtype | None = None,
    memory_format: torch.memory_format = torch.preserve_format,
    **place: object,
) -> Tensor:
    return _laid_out(made.to(dtype or self.dtype), self, memory_format)


def _as(self: Tensor, made: Tensor) -> Tensor:
    """Return ``made`` in the dtype and layout of ``self``, for an op that fills ``self``."""
    return _laid_out(made.to(self.dtype), self, torch.preserve_format)


def _laid_out(made: Tensor, like: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Return ``made`` in torch's layout, against which later views were checked."""
    wanted = torch.empty_like(like, dtype=made.dtype, memory_format=memory_format)
    return made if wanted.stride() == made.stride() else aten.copy(wanted, made)
