"""Fields of a line of a random program; ``lines/__init__.py`` has their meaning."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from .program import Tensor

if TYPE_CHECKING:
    from .draw import Draw


class Fields(dict[str, str]):
    """Fills one line's fields, each when it is met; the first value decides what fits.
    Raises LookupError if nothing does.
    """

    def __init__(self, draw: Draw, template: str) -> None:
        super().__init__()
        self.draw, self.random, self.used = draw, draw.random, set[str]()
        kinds = [field for _, field, _, _ in string.Formatter().parse(template) if field in FIRST]
        self.first = self._value(FIRST[kinds[0]])

    def __missing__(self, key: str) -> str:
        made = self._made(key)
        if key != "c":
            self[key] = made
        return made

    def _made(self, key: str) -> str:
        if key in FIRST and key not in ("q", "x3", "x4"):
            return self.first
        if key in PARTNERS:
            return self._value(PARTNERS[key], partner=True)
        x, r = self.draw.values[self.first], self.random
        d = self.get("d", "0")

        def size(d: int | str) -> str:
            if x.dim() and not x.shape[int(d)]:
                raise LookupError
            return f"{self.first}.shape[{d}]" if x.dim() else "1"

        match key:
            case "d":
                return str(r.randrange(-x.dim(), x.dim()) if x.dim() else 0)
            case "ds":
                return (
                    str(tuple(sorted(r.sample(range(x.dim()), r.randint(1, x.dim()))))) if x.dim() else "()"
                )
            case "perm":
                return str(tuple(r.sample(range(x.dim()), x.dim())))
            case "c":
                return r.choice(("0.5", "2", "-1.5", "0", "1", "0.1"))
            case "k":
                return r.choice(("True", "False"))
            case "t":
                return r.choice(("f32", "bf16", "f16", "f64"))
            case "j":
                return self._position(int(d))
            case "j0":
                return self._position(-1)
            case "slice":
                return ", ".join(
                    r.choice((":", "1:", ":-1", "::2", "0:3", "-2:")) for _ in range(max(x.dim(), 1))
                )
            case "l":
                return f"{self.first}.flatten(0, -2)[0]"
            case "w":
                return f"{self.first}.reshape(-1, {self.first}.shape[-1])[:9].mT"
            case "q":
                return f"{self.first}.reshape(1, 1, -1, {self.first}.shape[-1])"
            case "x3":
                return f"{self.first}.reshape(1, -1, {self.first}.shape[-1])"
            case "x4":
                return (
                    f"{self.first}.reshape(-1, *{self.first}.shape[-3:])"
                    if x.dim() > 2
                    else f"{self.first}[None, None]"
                )
            case "l4":
                return (
                    f"{self.first}.flatten()[:1].expand({self.first}.shape[-3] if {self.first}.dim() > "
                    f"2 else 1)"
                )
            case "new":
                return f"v{len(self.draw.values)}"
            case "r":
                rows = f"({self.first}.numel() // {size(-1)})"
                return f"({self._value(_is_int)}.flatten().long()[:1].expand({rows}) % {size(-1)})"
            case "g":
                return self._indices(size(d))
            case "g0":
                return self._indices(size(0))
            case "g1":
                return self._indices(size(1))
            case "gl":
                return self._indices(size(-1))
            case "gs":
                return f"(torch.arange({self.first}.numel()).reshape({self.first}.shape) * 7 % {size(d)})"
        raise AssertionError(key)

    def _position(self, d: int) -> str:
        x = self.draw.values[self.first]
        count = x.shape[d] if x.dim() else 1
        if not count:
            raise LookupError
        return str(self.random.randrange(count))

    def _indices(self, size: str) -> str:
        """Up to five, below ``size``."""
        return f"({self._value(_is_int)}.flatten().long()[:5] % {size})"

    def _value(self, fits: Callable[[Draw, str], bool], partner: bool = False) -> str:
        draw = self.draw
        names = [n for n in draw.values if fits(draw, n)]
        if partner:
            names = [n for n in names if _broadcasts(draw.values[n], draw.values[self.first])]
        if not names:
            raise LookupError
        name = self.random.choice(names[-4:] if self.random.random() < 0.7 else names)
        self.used.add(name)
        return name


def _is_float(draw: Draw, name: str) -> bool:
    return draw.values[name].is_floating_point()


def _is_int(draw: Draw, name: str) -> bool:
    dtype = draw.values[name].dtype
    return not dtype.is_floating_point and dtype is not torch.bool


def _is_bool(draw: Draw, name: str) -> bool:
    return draw.values[name].dtype is torch.bool


def _is_exact(draw: Draw, name: str) -> bool:
    return name in draw.exact


def _is_any(draw: Draw, name: str) -> bool:
    return True


FIRST = {
    "x": _is_float,
    "i": _is_int,
    "v": _is_any,
    "e": _is_exact,
    "o": _is_float,
    "q": _is_float,
    "x3": _is_float,
    "x4": _is_float,
}
PARTNERS = {"y": _is_float, "n": _is_int, "m": _is_bool, "f": _is_exact}


def _broadcasts(x: Tensor, y: Tensor) -> bool:
    return all(1 in (a, b) or a == b for a, b in zip(reversed(x.shape), reversed(y.shape), strict=False))
