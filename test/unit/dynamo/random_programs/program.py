"""Random program as text: inputs, lines, and returned values."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor

NAMES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "b8": torch.bool,
}
WIDE = {name: torch.float64 if dtype.is_floating_point else dtype for name, dtype in NAMES.items()}


@dataclass(frozen=True)
class Given:
    """An input: shape, dtype by name, layout, whether its gradient is asked for, whether it has infinities
    and NaN.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    differentiated: bool = False
    special: bool = False

    def make(self, seed: int, shape: tuple[int, ...] | None = None) -> Tensor:
        """The same numbers for the same seed; ``shape`` is another one than its own."""
        g = torch.Generator().manual_seed(seed)
        shape, layout = self.shape if shape is None else shape, self.layout
        if layout == "transposed" and len(shape) > 1:
            return self._drawn((*shape[:-2], shape[-1], shape[-2]), g).mT
        if layout == "offset":
            return self._drawn((3, *shape), g)[1]
        if layout == "strided" and shape:
            return self._drawn((*shape, 2), g)[..., 0]
        if layout == "expanded" and shape:
            return self._drawn((1, *shape[1:]), g).expand(shape)
        if layout == "channels_last" and len(shape) == 4:
            return self._drawn(shape, g).to(memory_format=torch.channels_last)
        return self._drawn(shape, g)

    def _drawn(self, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
        dtype = NAMES[self.dtype]
        if not dtype.is_floating_point:
            return torch.randint(0, 2 if dtype is torch.bool else 9, shape, generator=g).to(dtype)
        x = torch.randn(shape, generator=g)
        if self.special and x.numel():
            at = torch.randint(0, x.numel(), (3,), generator=g)
            x.view(-1)[at] = torch.tensor([float("inf"), float("-inf"), float("nan")])
        return x.to(dtype)


@dataclass(frozen=True)
class Program:
    """Inputs, lines, and the names that are returned; ``dtypes`` are those of all values."""

    seed: int
    given: tuple[Given, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...] = ()

    def text(self) -> str:
        inputs = ", ".join(f"v{n}" for n in range(len(self.given)))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program({inputs}):\n{body}    return {', '.join(self.results)},\n"

    def function(self, wide: bool = False) -> Callable[..., tuple[Tensor, ...]]:
        """The program, with every float in f64 if ``wide``, as then its inputs have to be."""
        values = names(wide)
        file = f"<program {self.seed}{' in f64' if wide else ''}>"
        linecache.cache[file] = (len(self.text()), None, self.text().splitlines(True), file)
        exec(compile(self.text(), file, "exec"), values)
        return values["program"]

    def inputs(self, call: int = 0) -> list[Tensor]:
        """Those of the number of a call; any but the first has other sizes."""
        shapes = [tuple(self._size(n, call) for n in g.shape) for g in self.given]
        return [
            g.make(self.seed + n, shape) for n, (g, shape) in enumerate(zip(self.given, shapes, strict=True))
        ]

    def _size(self, n: int, call: int) -> int:
        """Dims of one size have one size in each call: all larger in the second, later as it is drawn for
        each size.
        """
        if n < 3 or call == 0:
            return n
        if call == 1:
            return n + 2
        return random.Random(f"{self.seed} {call} {n}").choice((n, n - 1, n + 1, n // 2, n * 2, 1))

    def __str__(self) -> str:
        return "\n".join([*(f"v{n}: {g}" for n, g in enumerate(self.given)), self.text()])


def names(wide: bool) -> dict[str, Any]:
    """What the lines of a program name beside its values."""
    return {"torch": torch, "F": torch.nn.functional, **(WIDE if wide else NAMES)}
