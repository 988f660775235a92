"""Python identifiers for the values of a program: short, unique, and close to the user's own names."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, count

GIVEN = {"rank", "torch", "inf", "nan", "step", "GROUPS", "kernel", "kernels", "empty"}
RESERVED = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | GIVEN


class Names:
    """Generator of unique identifiers."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(RESERVED) | set(taken)
        self._counts: defaultdict[str, count[int]] = defaultdict(count)

    def is_free(self, name: str) -> bool:
        return name not in self._taken

    def exact(self, wanted: str) -> str:
        """Return ``wanted`` as an identifier, with a number appended if it is taken."""
        base = identifier(wanted)
        return self._first_free(chain([base], (f"{base}_{number}" for number in count(2))))

    def numbered(self, base: str) -> str:
        """Return the next of ``base_0``, ``base_1``, ..."""
        return self._first_free(f"{base}_{number}" for number in self._counts[base])

    def _first_free(self, names: Iterable[str]) -> str:
        name = next(filter(self.is_free, names))
        self._taken.add(name)
        return name


def tuple_text(parts: Iterable[str]) -> str:
    """Return a tuple as Python text."""
    texts = list(parts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def identifier(text: str) -> str:
    """Return an identifier, as ``layers_0_weight__exp_avg`` for ``layers.0.weight/exp_avg``."""
    name = re.sub(r"\W", "_", text.replace("/", "__"))
    return f"_{name}" if not name or name[0].isdigit() else name
