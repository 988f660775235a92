"""Execution of calls on real tensors, for proofs of rules.

A coordinate is a rank's index on each axis; an assignment says which axes split which factor.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardc.dialects.aten.call import DEVICE, Device, OpCall, leaves, replace_leaves
from shardc.dialects.aten.schema import overload, parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.collectives.exchange import ZEROS
from shardc.dialects.dist.sharding import Sharding
from shardc.dialects.rules.rule import Assignment
from shardc.runtime.torch_private import schema_of

Coordinate = Mapping[Axis, int]
"""A rank's index on each axis."""

_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


class HandedOver(Exception):
    """Raised to end a rank's local call at an exchange."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value


@dataclass
class EagerLocal:
    """A rule's :class:`Local` on real tensors: ``emit`` runs the operator, offsets are ints."""

    spec: OpCall
    args: tuple[Any, ...]
    results: tuple[TensorType | None, ...]
    sizes: Mapping[str, int]
    assignment: Assignment
    coordinate: Coordinate
    peer: Callable[[Coordinate, int], Tensor] | None = None
    """Return the value that the rank at a coordinate sends in its exchange of this number."""
    until: int = -1
    """Number of the exchange at which this rank's run stops and its value is returned to the caller of
    ``peer``.
    """
    exchanges: int = 0
    """Number of exchanges so far."""

    def size(self, factor: str) -> int:
        return self.sizes[factor] // self.ways(factor)

    def ways(self, factor: str) -> int:
        return prod(axis.size for axis in self.assignment.get(factor, ()))

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        return base + scale * index_over(self.assignment.get(factor, ()), self.coordinate) * self.size(factor)

    def exchange(self, value: Tensor, factor: str, sources: Sequence[int]) -> Tensor:
        axes, number = self.assignment[factor], self.exchanges
        self.exchanges += 1
        if number == self.until:
            raise HandedOver(value)
        source = sources[index_over(axes, self.coordinate)]
        if source == ZEROS:
            return torch.zeros_like(value)
        assert self.peer is not None, "an exchange with nobody"
        return self.peer({**self.coordinate, **place_over(axes, source)}, number)

    def emit(self, target: str, *args: object) -> Any:
        return run_operator(target, args)


def run_operator(target: str, args: Sequence[object]) -> Any:
    """Run an ATen operator on real tensors; ``args`` in schema order, keyword-only ones included."""
    positional, keywords = [], {}
    for arg, (name, kind, keyword_only) in zip(args, parameters(target), strict=False):
        if isinstance(arg, Device):
            arg = torch.device("cpu")
        elif isinstance(arg, int) and "Layout" in kind:
            arg = torch.strided
        elif isinstance(arg, int) and "MemoryFormat" in kind:
            arg = _FORMATS[arg]
        if keyword_only:
            keywords[name] = arg
        else:
            positional.append(arg)
    return overload(target)(*positional, **keywords)


def results_list(made: Any) -> list[Any]:
    """Return an operator's results as a list."""
    return list(made) if isinstance(made, tuple | list) else [made]


def call_of(target: str, args: Sequence[object]) -> tuple[OpCall, tuple[Any, ...], list[Any]]:
    """Run ``target`` on real tensors. Return the call, all arguments and the whole results.

    Trailing arguments may be omitted if they have defaults. A result that is None stays None.
    """
    defaults = [a.default_value for a in schema_of(overload(target)).arguments]
    full = tuples((*args, *defaults[len(args) :]))
    whole = results_list(run_operator(target, full))
    return OpCall(target, replace_leaves(full, _as_in_ir), tuple(map(type_of, whole))), full, whole


def sample(*shape: int, dtype: torch.dtype = torch.float64, below: int = 5, seed: int = 0) -> Tensor:
    """Return a deterministic tensor for proofs: normal floats, integers in [0, below), or random booleans."""
    generator = torch.Generator().manual_seed(seed + 1000 * len(shape) + sum(shape))
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return (torch.randperm(prod(shape), generator=generator) % 2).view(shape).to(dtype)
    return torch.randint(0, below, shape, generator=generator).to(dtype)


def index_over(axes: Sequence[Axis], coordinate: Coordinate) -> int:
    """Return a rank's index over ``axes``, the first axis the most major."""
    return reduce(lambda place, axis: place * axis.size + coordinate[axis], axes, 0)


def place_over(axes: Sequence[Axis], index: int) -> Coordinate:
    """Return the coordinates on ``axes`` of this index: the inverse of :func:`index_over`."""
    place: dict[Axis, int] = {}
    for axis in reversed(axes):
        index, place[axis] = divmod(index, axis.size)
    return place


def block(tensor: Tensor, sharding: Sharding, place: Coordinate | tuple[int, ...]) -> Tensor:
    """Return a rank's block of a tensor. ``place`` is its coordinate, or the block's index along each dim."""
    numbers = place if isinstance(place, tuple) else [index_over(axes, place) for axes in sharding.dims]
    sizes = sharding.local_shape(tuple(tensor.shape))
    part = tensor[tuple(slice(n * size, (n + 1) * size) for n, size in zip(numbers, sizes, strict=True))]
    return part if isinstance(place, tuple) else part.contiguous()


def relative_error(whole: Tensor, found: Tensor) -> float:
    """Return the largest difference over the largest finite magnitude (or 1).

    It is infinite if an element is finite in only one of the tensors.
    """
    if whole.numel() == 0:
        return 0.0
    wide = torch.complex128 if whole.dtype.is_complex else torch.float64
    a, b = whole.to(wide), found.to(wide)
    alike = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(alike, 0.0, (a - b).abs()).nan_to_num(nan=float("inf"))
    finite = a.abs()[a.isfinite()]
    return float(difference.max()) / max(1.0, float(finite.max()) if finite.numel() else 1.0)


def tensor_leaves(args: tuple[object, ...]) -> Iterator[Tensor]:
    return (leaf for leaf in leaves(args) if isinstance(leaf, Tensor))


def tuples(args: Iterable[object]) -> tuple[Any, ...]:
    """Return ``args`` with lists converted to tuples."""
    return tuple(
        tuples(a) if isinstance(a, list | tuple) and not isinstance(a, TensorType) else a for a in args
    )


def type_of(tensor: Tensor | None) -> TensorType | None:
    return None if tensor is None else TensorType(tuple(tensor.shape), tensor.dtype)


def _as_in_ir(leaf: object) -> object:
    if isinstance(leaf, torch.device):
        return DEVICE
    return type_of(leaf) if isinstance(leaf, Tensor) else leaf
