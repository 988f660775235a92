"""Sizes of memory as a user writes them."""

from __future__ import annotations

import re
from math import inf, isinf

UNITS = {"": 1, "k": 1_000, "M": 1_000**2, "G": 1_000**3, "T": 1_000**4}
BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_SIZE = re.compile(r"(?P<number>\d[\d_]*(\.\d+)?)\s*(?P<unit>[kMGT]i?|Ki|)B?")


def size_of(value: object) -> object:
    """Bytes of ``"40GB"``, ``"1.5 GiB"`` or ``40e9``; what is none of these as it is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    unit = {**UNITS, **BINARY}.get(found["unit"])
    size = inf if unit is None else float(found["number"]) * unit
    return value if isinf(size) else int(size)
