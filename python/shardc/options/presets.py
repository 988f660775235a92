"""Names of presets, the axes that each looks for, and products of presets as text."""

import re
from collections.abc import Collection, Mapping, Sequence

from shardc.diagnostics.passes.plan import AxisOfTwoPresets, UnknownAxis, UnknownPreset
from shardc.diagnostics.passes.search import AutoInProduct

AUTO = "auto"
"""The plan that a search finds (:mod:`shardc.passes.search`)."""
_DATA = ("data", "dp", "fsdp", "batch", "replica")
_TENSOR = ("tensor", "tp", "model")
_CONTEXT = ("context", "cp", "seq")
PRESETS: dict[str, tuple[str, ...]] = {
    "data": _DATA,
    "zero1": _DATA,
    "zero2": _DATA,
    "zero3": _DATA,
    "tensor": _TENSOR,
    "sequence": _TENSOR,
    "context": _CONTEXT,
    "allgather": _CONTEXT,
    "ulysses": ("ulysses", *_CONTEXT),
    "ring": ("ring", *_CONTEXT),
    "pipeline": ("pipe", "pp", "pipeline", "stage"),
    "experts": ("experts", "expert", "ep"),
    "expert": ("expert", "experts", "ep"),
}
"""Presets with the axes that each takes by default: the first of them that the mesh has."""

PRODUCTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "hybrid": (("data", ("replica", "dp_replicate")), ("zero3", ("data", "dp", "fsdp", "dp_shard"))),
}
"""Names for several presets, each with its axes. HSDP (``hybrid``) keeps a whole copy in each replica."""

TENSOR_PRESETS = ("tensor", "sequence")
"""Presets that shard weights as a plan of styles says."""

CONTEXT_PRESETS = ("context", "allgather", "ulysses", "ring")
"""Presets that shard the sequence. ``context`` chooses how attention obtains keys and values."""

_TERM = re.compile(r"\s*([a-z0-9]+)\s*(?::\s*(\w+)\s*)?")


def product_of(plan: Mapping[str, object]) -> str | None:
    """Return the product that the keys of ``plan`` form if its values are plans; None for other mappings.

    ``{"zero3*tensor": {"w1": ColwiseParallel()}, "pipeline": pp_plan}`` is ``zero3*tensor*pipeline``.
    """
    return (
        "*".join(plan)
        if any(value is None or isinstance(value, Mapping) for value in plan.values())
        else None
    )


def is_searched(plan: object) -> bool:
    """Return whether a plan is ``auto``, or a product with it."""
    return isinstance(plan, str) and AUTO in (word.strip() for word in plan.split("*"))


def batch_axes(axes: Sequence[str], shared: Collection[str] = ()) -> list[str]:
    """Return the axes that shard the batch under a searched plan: all but the innermost two.

    So does an outermost axis of the name :data:`BATCH`. A search decides for each call what the others do.
    ``axes``: device axes without a pipeline's. ``shared``: the axis with unequal shares, if any; it shards
    the batch, too.
    """
    named = {BATCH}.intersection(axes[:1]).union(shared)
    return [axis for number, axis in enumerate(axes) if number < len(axes) - SEARCHED_AXES or axis in named]


BATCH = "batch"
"""Name of an axis that shards the batch alone under a searched plan, if it is the outermost."""
SEARCHED_AXES = 2
"""The most mesh axes for which a search decides call by call."""


def plan_terms(text: str, axes: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return preset and axis of each factor of ``data``, ``zero3*tensor`` or ``zero2:fsdp*sequence:tp``.

    ``auto`` gives no factor: it is searched, alone or beside a pipeline. ``axes``: sizes of the mesh's device
    axes by name. Raises UnknownPreset, UnknownAxis, AxisOfTwoPresets, AutoInProduct.
    """
    users: dict[str, str] = {}
    words = text.split("*")
    if is_searched(text):
        words = [word for word in words if word.strip() != AUTO]
    for word in words:
        match = _TERM.fullmatch(word)
        name, given = match.groups() if match else (word, None)
        if len(words) < text.count("*") + 1 and name != "pipeline":
            raise AutoInProduct(plan=text)
        if name not in PRESETS and (name not in PRODUCTS or given):
            raise UnknownPreset(word=word.strip(), plan=text, known=", ".join((*PRESETS, *PRODUCTS)))
        wanted = PRODUCTS.get(name) or ((name, (given,) if given else PRESETS[name]),)
        for preset, names in wanted:
            axis = _axis(preset, names, axes)
            if axis in users:
                raise AxisOfTwoPresets(axis=axis, plan=text, first=users[axis], second=preset)
            users[axis] = preset
    return [(name, axis) for axis, name in users.items()]


def _axis(preset: str, wanted: tuple[str, ...], axes: Mapping[str, int]) -> str:
    found = next((name for name in wanted if name in axes), None)
    if found is None:
        known = ", ".join(f"{name} ({size})" for name, size in axes.items()) or "no axes"
        example, axis = f"{preset}:{next(iter(axes))}" if axes else "data", " or ".join(wanted)
        raise UnknownAxis(what=f"preset {preset!r}", axis=axis, known=known, suggestion=example)
    return found
