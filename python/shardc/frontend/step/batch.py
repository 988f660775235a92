"""Batches as lists of named tensors, and the loss found in what a model returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from shardc.diagnostics.frontend import BatchUnsupported, LossNotFound, LossNotScalar
from shardc.frontend.nodes import listed
from shardc.frontend.step.spec import BatchTree
from shardc.runtime.batch import special_form
from shardc.runtime.torch_private import pytree

LossFunction = Callable[[Any, Any], torch.Tensor]
STATIC_TYPES = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device)


def flatten_batch(batch: object) -> tuple[list[torch.Tensor], BatchTree]:
    """Tensors of a batch by dotted names (``input_ids``, ``0``, ``1.x``); other leaves become constants.

    Raises BatchUnsupported on a leaf of another type, a tensor that is not dense, or no tensor at all.
    """
    # Mappings that pytree does not know (transformers' BatchEncoding) as dicts; a lone tensor as a tuple.
    tree = dict(batch) if isinstance(batch, Mapping) else listed(batch)
    leaves, spec = pytree.tree_flatten_with_path(tree)
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
    return tensors, BatchTree(spec, tuple(names), constants)


def unflatten_batch(tree: BatchTree, tensors: Sequence[torch.Tensor]) -> Any:
    """The batch, as a dict, tuple or list, with these tensors in it."""
    remaining = iter(tensors)
    count = tree.spec.num_leaves
    leaves = [tree.constants[i] if i in tree.constants else next(remaining) for i in range(count)]
    return pytree.tree_unflatten(leaves, tree.spec)


def find_loss(output: object, batch: object, loss: LossFunction | None) -> torch.Tensor:
    """The 0-d loss: ``loss(output, batch)``, or ``output.loss``, or the output itself.

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


def _loss_in(output: object) -> object:
    if isinstance(output, Mapping):
        return output.get("loss")
    if isinstance(output, torch.Tensor):
        return output if output.numel() == 1 else None
    return getattr(output, "loss", None)


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        tail = "" if value.requires_grad else ", not connected to the parameters"
        return f"a {value.dtype} tensor of shape {list(value.shape)}{tail}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(_describe(item) for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"
