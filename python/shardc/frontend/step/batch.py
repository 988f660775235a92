"""Batches as lists of named tensors, and the loss in a model's output."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from shardc.diagnostics.frontend import BatchUnsupported, LossNotFound, LossNotScalar
from shardc.frontend.nodes import listed
from shardc.frontend.step.spec import BatchTree
from shardc.runtime.batch import special_form
from shardc.runtime.torch_private import pytree

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LossFunction = Callable[[Any, Any], torch.Tensor]
STATIC_TYPES = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device)


def flatten_batch(batch: object) -> tuple[list[torch.Tensor], BatchTree]:
    """Return a batch's tensors by dotted names (``input_ids``, ``0``, ``1.x``), and its tree.

    Leaves that are not tensors become constants of the tree.

    A dataclass uses the names of its fields, whether it is registered with pytree or not.

    Raises BatchUnsupported for a leaf of another type, a tensor that is not dense, or no tensor at all.
    """
    like = batch if isinstance(batch, Mapping) or _is_dataclass(batch) else listed(batch)
    leaves, spec = pytree.tree_flatten_with_path(_plain(like))
    tensors, names, constants = [], [], {}
    for position, (path, leaf) in enumerate(leaves):
        name = ".".join(map(_key_name, path))
        if isinstance(leaf, torch.Tensor):
            if form := special_form(leaf):
                raise BatchUnsupported(reason=f"{name} is {form}", where=f"example_batch, {name}")
            tensors.append(leaf)
            names.append(name)
        elif isinstance(leaf, STATIC_TYPES):
            constants[position] = leaf
        else:
            reason = f"{name} is a {type(leaf).__name__}"
            raise BatchUnsupported(reason=reason, where=f"example_batch, {name}")
    if not tensors:
        raise BatchUnsupported(reason="it holds no tensor", where="example_batch")
    return tensors, BatchTree(spec, tuple(names), constants, like)


def unflatten_batch(tree: BatchTree, tensors: Sequence[torch.Tensor]) -> Any:
    """Put tensors into a batch with the containers of the example."""
    remaining = iter(tensors)
    count = tree.spec.num_leaves
    leaves = [tree.constants[i] if i in tree.constants else next(remaining) for i in range(count)]
    return _dressed(pytree.tree_unflatten(leaves, tree.spec), tree.like)


def in_form_of(batch: object, like: object) -> object | None:
    """Convert a batch to the containers of ``like``; None if its parts or the places of its tensors differ.

    Constants may differ.
    """
    if isinstance(like, tuple) and isinstance(batch, torch.Tensor):
        batch = (batch,)
    return _dressed(_plain(batch), like) if _is_like(_plain(batch), _plain(like)) else None


def entries_of(batch: object) -> dict[str, Any]:
    """Return the entries of a mapping, or the fields of a dataclass, by name."""
    if isinstance(batch, Mapping):
        return dict(batch)
    assert _is_dataclass(batch)
    return {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}


def find_loss(output: object, batch: object, loss: LossFunction | None) -> torch.Tensor:
    """Return the 0-d loss: ``loss(output, batch)``, or ``output.loss``, or the output itself.

    Raises LossNotFound if there is none, LossNotScalar if it is no differentiable floating-point number.
    """
    found = loss(output, batch) if loss is not None else _loss_in(output)
    if not isinstance(found, torch.Tensor):
        raise LossNotFound(output=_describe(output), where="loss")
    if found.numel() != 1 or not found.is_floating_point() or not found.requires_grad:
        raise LossNotScalar(loss=_describe(found), where="loss")
    return found.reshape(())


def _key_name(key: object) -> str:
    named = (getattr(key, attribute) for attribute in ("key", "idx", "name") if hasattr(key, attribute))
    return str(next(named, key))


def _is_dataclass(value: object) -> TypeGuard[DataclassInstance]:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _plain(part: object) -> object:
    """Convert mappings and dataclasses to dicts, since pytree may treat them otherwise."""
    if isinstance(part, Mapping) or _is_dataclass(part):
        return {key: _plain(value) for key, value in entries_of(part).items()}
    if isinstance(part, tuple | list):
        return _same_kind(part, map(_plain, part))
    return part


def _dressed(part: Any, like: object) -> Any:
    """Undo ``_plain``: restore the containers of ``like``."""
    if isinstance(like, tuple | list):
        return _same_kind(like, map(_dressed, part, like))
    if not (isinstance(like, Mapping) or _is_dataclass(like)):
        return part
    values = {key: _dressed(part[key], value) for key, value in entries_of(like).items()}
    if type(like) is dict or (isinstance(like, Mapping) and not isinstance(like, MutableMapping)):
        return values
    made: Any = copy.copy(like)
    for key, value in values.items():
        if isinstance(made, MutableMapping):
            made[key] = value
        else:
            object.__setattr__(made, key, value)  # also works on a frozen dataclass
    return made


def _is_like(part: object, like: object) -> bool:
    """Return whether two plain batches have tensors, constants and parts in the same places."""
    if isinstance(like, dict):
        return (
            isinstance(part, dict)
            and part.keys() == like.keys()
            and all(_is_like(part[key], value) for key, value in like.items())
        )
    if isinstance(like, tuple | list):
        return isinstance(part, tuple | list) and len(part) == len(like) and all(map(_is_like, part, like))
    return isinstance(part, torch.Tensor if isinstance(like, torch.Tensor) else STATIC_TYPES)


def _same_kind(like: Sequence[object], parts: Iterable[object]) -> Sequence[object]:
    """Return a list, tuple or named tuple of ``parts``."""
    make = getattr(like, "_make", None)
    if make is not None:
        return make(parts)
    return list(parts) if isinstance(like, list) else tuple(parts)


def _loss_in(output: object) -> object:
    if isinstance(output, Mapping):
        return output.get("loss")
    if isinstance(output, torch.Tensor):
        return output if output.numel() == 1 else None
    if (first := _first_of(output)) is not None:
        return first
    return getattr(output, "loss", None)


def _first_of(output: object) -> torch.Tensor | None:
    """Return the loss of a plain ``(loss, logits, ...)``: its first part, if that is a 0-d tensor."""
    if not isinstance(output, tuple | list) or type(output) not in (tuple, list):
        return None
    first = next(iter(output), None)
    return first if isinstance(first, torch.Tensor) and first.dim() == 0 else None


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        tail = "" if value.requires_grad else ", not connected to the parameters"
        return f"a {value.dtype} tensor of shape {list(value.shape)}{tail}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(_describe(item) for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"
