"""Conversion of a batch to the program's list of tensors, each checked against the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

from .check import Json
from .comm.layout import Leaf
from .errors import BatchMismatch

HINT = "pass a batch like the example that the step was compiled with, or compile for this one"
LOCAL_HINT = (
    "pass this rank's rows of a batch of the example's sizes (drop_last=True in the loader), or the global "
    "batch to step(batch), which takes other sizes"
)


def leaves_of(batch: object, tree: Json) -> dict[str, Tensor]:
    """Return the tensors of a batch by leaf name. Raises BatchMismatch naming the leaf that does not fit.

    The manifest's ``tree`` is ``{"mapping": {key: tree}}``, ``{"sequence": [tree]}``, ``{"leaf": name}``,
    ``{"constant": value}`` for a number, string or None, or ``{"repr": text}`` for a constant that JSON can't
    hold. A dataclass is read as a mapping of its fields.
    """
    if isinstance(batch, Tensor) and len(tree.get("sequence", ())) == 1:
        batch = (batch,)
    return dict(_walk(batch, tree, ""))


def check_leaf(values: Mapping[str, Tensor], leaf: Leaf, shape: tuple[int, ...], hint: str = HINT) -> None:
    """Raise BatchMismatch unless ``values`` has the leaf, with its dtype and with ``shape``."""
    value = values.get(leaf.name)
    if value is None:
        raise BatchMismatch(f"the batch lacks leaf {leaf.name!r}", leaf.name, HINT)
    if form := special_form(value) or _without_values(value):
        what = f"batch leaf {leaf.name!r} is {form}; the program takes dense tensors with values"
        raise BatchMismatch(what, leaf.name, "convert it before the step, as with .to_dense()")
    if tuple(value.shape) != shape or value.dtype != leaf.dtype:
        got = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        expected = f"{str(leaf.dtype).removeprefix('torch.')} {list(shape)}"
        what = f"batch leaf {leaf.name!r} is {got}; the program takes {expected}"
        raise BatchMismatch(what, leaf.name, hint)


def special_form(value: Tensor) -> str:
    """Return text on the form of a tensor that is not dense; empty for a dense one."""
    if value.is_nested:
        return "a nested tensor"
    if value.is_quantized:
        return "a quantized tensor"
    return "" if value.layout is torch.strided else f"a tensor of layout {value.layout}"


def _without_values(value: Tensor) -> str:
    """Return why a dense tensor has no elements to read; empty if it has."""
    # A class with its own __torch_dispatch__, such as FakeTensor or DTensor.
    if getattr(type(value), "__torch_dispatch__", None) is not getattr(Tensor, "__torch_dispatch__", None):
        return f"a {type(value).__name__}"
    return "on the meta device" if value.is_meta else ""


def _walk(batch: object, tree: Json, path: str) -> Iterator[tuple[str, Tensor]]:
    if "leaf" in tree:
        if not isinstance(batch, Tensor):
            raise _wrong(tree["leaf"], "a tensor", batch)
        yield tree["leaf"], batch
    elif "mapping" in tree:
        yield from _walk_mapping(batch, tree["mapping"], path)
    elif "sequence" in tree:
        parts = tree["sequence"]
        if not isinstance(batch, (list, tuple)) or len(batch) != len(parts):
            raise _wrong(path, f"a list or tuple of {len(parts)}", batch)
        for i, (part, below) in enumerate(zip(batch, parts, strict=True)):
            yield from _walk(part, below, _below(path, i))
    elif not _is_constant(batch, tree):
        constant = tree.get("repr", repr(tree.get("constant")))
        raise _wrong(path, f"{constant}, a constant of the program", batch)


def _walk_mapping(batch: object, trees: dict[str, Json], path: str) -> Iterator[tuple[str, Tensor]]:
    if is_dataclass(batch) and not isinstance(batch, (type, Mapping)):
        batch = {field.name: getattr(batch, field.name) for field in fields(batch)}
    if not isinstance(batch, Mapping):
        raise _wrong(path, f"a mapping with {', '.join(trees)}", batch)
    items = {str(key): value for key, value in batch.items()}
    lacking, unknown = trees.keys() - items.keys(), items.keys() - trees.keys()
    for what, names in (("lacks", lacking), ("has the unknown", unknown)):
        if names:
            leaf = _below(path, min(names))
            raise BatchMismatch(f"the batch {what} leaf {leaf!r}", leaf, HINT)
    for key, below in trees.items():
        yield from _walk(items[key], below, _below(path, key))


def _below(path: str, key: object) -> str:
    return f"{path}{'.' if path else ''}{key}"


def _is_constant(value: object, tree: Json) -> bool:
    if "repr" in tree:
        return repr(value) == tree["repr"]
    return type(value) is type(tree["constant"]) and value == tree["constant"]


def _wrong(path: str, wanted: str, got: object) -> BatchMismatch:
    leaf = path or "batch"
    return BatchMismatch(f"batch leaf {leaf!r} is {_described(got)}; the program takes {wanted}", leaf, HINT)


def _described(value: object) -> str:
    """Describe a leaf or container for a message, without the values of tensors."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with {', '.join(map(str, value)) or 'nothing'}"[:80]
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {value!r}"[:80]
