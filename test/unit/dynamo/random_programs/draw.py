"""Draws programs: each line runs once when it is drawn, so that what does not fit is left out."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence

import torch

from .fields import Fields
from .lines import EXACT, IN_PLACE, LINES, WEIGHTS
from .program import NAMES, Given, Program, Tensor, names
from .reduce import renamed

SIZES = (1, 1, 2, 3, 5, 7, 8, 16, 17, 33, 127, 129)
MOST_ELEMENTS = 20_000
LAYOUTS = ("contiguous", "contiguous", "transposed", "offset", "strided", "expanded", "channels_last")
DTYPES = ("f32", "f32", "f32", "bf16", "f16", "f64", "i64", "i32", "u8", "b8")
WITHIN = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "autocast": torch.bfloat16,
    "f16": torch.float16,
    "half": torch.float16,
}
"""Words that say of a line what it rounds to on its way."""
REFUSED = (RuntimeError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What PyTorch raises for a line that does not fit its values."""


def draw(seed: int) -> Program:
    """The program of a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Draw(seed).program()


class Draw:
    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.names = names(False)
        self.values: dict[str, Tensor] = {}
        self.exact: set[str] = set()
        self.lines: list[str] = []

    def program(self) -> Program:
        r = self.random
        full = [r.choice(SIZES) for _ in range(r.choice((1, 2, 2, 3, 3, 4)))]
        if r.random() < 0.05:
            full[r.randrange(len(full))] = 0
        while torch.Size(full).numel() > MOST_ELEMENTS:
            full[full.index(max(full))] = r.choice((2, 7))
        floats = DTYPES[:1] if r.random() < 0.5 else DTYPES[:6]
        special = r.random() < 0.1
        given = []
        for n in range(r.randint(1, 4)):
            dtype = r.choice(floats if n == 0 or r.random() < 0.7 else DTYPES)
            is_float = NAMES[dtype].is_floating_point
            given.append(
                Given(
                    self._part(full),
                    dtype,
                    r.choice(LAYOUTS),
                    is_float and r.random() < 0.5,
                    special and is_float,
                )
            )
        self.given = tuple(given)
        self.values = self._made()
        self.exact = set(self.values)
        wanted = r.choice((r.randint(1, 10), r.randint(8, 24)))
        with torch.enable_grad():
            for _ in range(8 * wanted):
                if len(self.lines) < wanted:
                    self._try_line()
        made = list(self.values)
        results = list(dict.fromkeys([made[-1], *(r.choice(made) for _ in range(r.randint(0, 2)))]))
        named = {dtype for word, dtype in WITHIN.items() if any(word in line for line in self.lines)}
        dtypes = tuple(sorted({v.dtype for v in self.values.values()} | named, key=str))
        return Program(self.seed, self.given, tuple(self.lines), tuple(results), dtypes)

    def _made(self) -> dict[str, Tensor]:
        return {
            f"v{n}": g.make(self.seed + n).requires_grad_(g.differentiated) for n, g in enumerate(self.given)
        }

    def _part(self, full: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to ``full``."""
        r = self.random
        shape = tuple(1 if r.random() < 0.2 else n for n in full)
        return shape[r.randint(0, len(shape)) :] if r.random() < 0.2 else shape

    def _try_line(self) -> None:
        kind = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        template = self.random.choice(LINES[kind])
        try:
            fields = Fields(self, template)
            text = template.format_map(fields)
        except LookupError:
            return  # nothing fits
        name = f"v{len(self.values)}"
        if kind == IN_PLACE:
            self._in_place(text, fields, name)
            return
        line = text if text.startswith("with ") else f"{name} = {text}"
        trial = {**self.names, **self.values}
        try:
            exec(line, trial)
        except REFUSED:
            return
        made = trial[name]
        if (
            not isinstance(made, Tensor)
            or made.numel() > MOST_ELEMENTS
            or made.dim() > 5
            or made.is_complex()
        ):
            return
        self._add(name, line, made)
        if (kind in EXACT or ".where" in text) and fields.used <= self.exact and "exp(" not in text:
            self.exact.add(name)

    def _add(self, name: str, line: str, made: Tensor) -> None:
        self.lines.append(line)
        self.values[name] = made

    def _in_place(self, text: str, fields: Fields, name: str) -> None:
        """On a copy, most of the time; it stays the copy's name. What is written to is not exact from then
        on.
        """
        target = fields.first
        values = {n: v.detach().clone() if v.is_leaf else v.clone() for n, v in self.values.items()}
        fresh = self.random.random() < 0.6
        if fresh:
            text = renamed(text, target, name)
            values[name] = values[target].clone()
        trial = {**self.names, **values}
        try:
            exec(text, trial)
        except REFUSED:
            return
        if fresh:
            self._add(name, f"{name} = {target}.clone()", self.values[target].clone())
        backup = list(self.lines)
        self.lines.append(text)
        try:
            self._again()
        except REFUSED:
            self.lines = backup
            self._again()
        self.exact = set()

    def _again(self) -> None:
        """All values anew, for a write may have changed many of them."""
        trial = {**self.names, **self._made()}
        for line in self.lines:
            exec(line, trial)
        self.values = {n: trial[n] for n in self.values}
