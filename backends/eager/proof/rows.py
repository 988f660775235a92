"""Rows of a comparison: one for each value that the global program and the rank program computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from shardc.backends.eager.proof import tolerance as measure
from shardc.backends.eager.proof.comparison import Row
from shardc.backends.eager.proof.signature import Key
from shardc.backends.eager.proof.tolerance import Tolerance


class Joinable(Protocol):
    """Value as computed by ranks."""

    def join(self, shape: tuple[int, ...]) -> tuple[Tensor, float]:
        """Return the whole tensor of global ``shape``, and the largest difference between replicas."""
        ...


def compared(
    step: int,
    wanted: Mapping[Key, Tensor],
    found: Mapping[Key, Joinable],
    tolerance: Tolerance,
    moved: float,
    summed: Mapping[str, float],
    before: Mapping[Key, Tensor] | None = None,
) -> list[Row]:
    """Return one row for each value, and one more for a value whose replicas differ.

    ``moved``: learning rate times steps since the states were equal. ``summed``: for gradients, the magnitude
    of the summed terms. Errors of a gradient that cancels, and of optimizer state computed from it, are
    relative to that. ``before``: the values with which both programs began this step, if they were the same.
    Parameters then get another row, for their update.
    """
    sizes = {key: measure.magnitude(tensor) for key, tensor in wanted.items()}
    largest: dict[str, float] = {}
    for key, size in sizes.items():
        largest[_kind(key)] = max(size, largest.get(_kind(key), 0.0))
    rows = []
    # Program order, with the loss first. So the first failure is nearest to its cause.
    for key in sorted(wanted, key=lambda key: key[0] != "loss"):
        if key not in found:
            continue
        (role, name), tensor = key, wanted[key]
        made, spread = found[key].join(tuple(tensor.shape))
        scale = sizes[key] + measure.FLOOR * largest[_kind(key)]
        parameter = parameter_of(role, name)
        terms = summed.get(parameter, 0.0) if role in ("grad", "opt_state") else 0.0
        if _cancelled(parameter, sizes, tolerance, terms):
            scale += terms
        bound = tolerance.bound(role, tensor.dtype, scale, moved)
        gap = measure.difference(made, tensor)
        rows.append(Row(step, role, name, measure.relative(gap, scale), bound))
        start = None if before is None or role != "param" else before.get(key)
        if start is not None and not _cancelled(name, sizes, tolerance, summed.get(name, 0.0)):
            error = measure.update_error(made, tensor, start)
            rows.append(Row(step, role, f"{name} (update)", error, measure.UPDATE))
        if spread > 0:
            rows.append(Row(step, role, f"{name} (between ranks)", measure.relative(spread, scale), bound))
    return rows


def _cancelled(parameter: str, sizes: Mapping[Key, float], tolerance: Tolerance, terms: float) -> bool:
    """Return True if a parameter's gradient is small compared with the ``terms`` that were summed for it."""
    return sizes.get(("grad", parameter), 0.0) <= tolerance.cancels * terms


def parameter_of(role: str, name: str) -> str:
    """Return the parameter that a gradient or optimizer state belongs to."""
    return name.rpartition("/")[0] if role == "opt_state" else name


def _kind(key: Key) -> str:
    """Return the kind of a value. Magnitudes of values of the same kind can be compared."""
    role, name = key
    if role == "output":
        return f"{role}/{name}"
    return f"{role}/{name.rpartition('/')[2]}" if role == "opt_state" else role
