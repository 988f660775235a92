"""Random numbers of one traced step: ``shardc::uniform``, keyed by the step's seed and the element's index.

Each draw has a number. The next number is stored in the state of PyTorch's generator, so that code which
saves and restores that state replays the same draws. Activation checkpointing does so around a forward that
it runs again, in all of its variants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from shardc.diagnostics.frontend import UnsupportedRandomOp
from shardc.runtime.operators.random import BITS

# During a trace the generator's seed is this plus the number of the next draw. No user uses such a seed.
_FIRST = 0x53484152_44430000


class RandomStream:
    """Draws of a trace. ``seed`` is the traced 0-d int64 argument, set once the trace has it."""

    seed: torch.Tensor | None = None

    def __init__(self) -> None:
        self._drawn = 0

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Count draws from 0 inside the block, and restore PyTorch's generator afterwards."""
        state = torch.default_generator.get_state()
        self.restart()
        try:
            yield
        finally:
            torch.default_generator.set_state(state)

    def restart(self) -> None:
        """Count from 0 again for another trace of the step."""
        self._drawn = 0
        torch.default_generator.manual_seed(_FIRST)

    @property
    def position(self) -> int:
        """Return the number of the next draw."""
        return torch.default_generator.initial_seed() - _FIRST

    def skip(self, draws: int) -> None:
        """Skip numbers that copies of draws use."""
        number = self.position + draws
        self._drawn = max(self._drawn, number)
        torch.default_generator.manual_seed(_FIRST + number)

    def next(self) -> int:
        """Return the number of the next draw.

        Raises UnsupportedRandomOp if the user's code seeds the generator.
        """
        number = self.position
        if not 0 <= number <= self._drawn:
            raise UnsupportedRandomOp(op="a random op", detail=": the step itself seeds PyTorch's generator")
        self._drawn = max(self._drawn, number + 1)
        torch.default_generator.manual_seed(_FIRST + number + 1)
        return number

    def uniform(self, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return numbers in [0, 1); complex numbers have two such parts."""
        if dtype.is_complex:
            real = dtype.to_real()
            return torch.complex(self.uniform(size, real), self.uniform(size, real))
        size = list(size)
        return torch.ops.shardc.uniform(self.seed, self.next(), size, [0] * len(size), size, dtype=dtype)

    def open_uniform(self, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return numbers in (0, 1), with finite logarithms that are not 0; half a step replaces 0."""
        return self.uniform(size, dtype).clamp(min=2.0 ** -(BITS[dtype] + 1))

    def normal(self, size: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return standard normal numbers by Box-Muller, in f32 or wider; complex ones have variance 1."""
        if dtype.is_complex:
            real = dtype.to_real()
            return torch.complex(self.normal(size, real), self.normal(size, real)) * math.sqrt(0.5)
        wide = wide_dtype(dtype)
        radius = torch.sqrt(-2.0 * torch.log(1.0 - self.uniform(size, wide)))
        return (radius * torch.cos(2.0 * math.pi * self.uniform(size, wide))).to(dtype)

    def integers(self, low: int, high: int, size: Sequence[int]) -> torch.Tensor:
        """Return int64 numbers from ``low`` to ``high`` - 1, each at most 2**-21 likelier than its share."""
        span = high - low
        if span <= 1 << 53:
            return (self.uniform(size, torch.float64) * span).floor().to(torch.int64) + low
        if 1 << 63 < span < 1 << 64:
            detail = f": it chooses from {span} integers, more than 2**63"
            raise UnsupportedRandomOp(op="random_", detail=detail)
        blocks = -(-span >> 32)
        block = (self.uniform(size, torch.float64) * blocks).floor().to(torch.int64)
        word = (self.uniform(size, torch.float64) * (1 << 32)).floor().to(torch.int64)
        if span == 1 << 64:
            return (block - (1 << 31)) * (1 << 32) + word
        drawn = block * (1 << 32) + word
        return (drawn if span == blocks << 32 else drawn.remainder(span)) + low


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to make numbers: f64 for f64 and integers, f32 for narrower floats."""
    exact = dtype == torch.float64 or not dtype.is_floating_point
    return torch.float64 if exact else torch.float32
