"""Says in a model's code how a tensor lies on the mesh."""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch

import shardc.runtime.operators.constrain  # noqa: F401  (registers shardc::constrain)
from shardc.diagnostics.passes.plan import TooManyDims
from shardc.dialects.dist.layout_text import layout_text

Layout = str | Sequence[object]


def constrain(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Say in a model's code how an activation is sharded in a compiled step.

    The gradient of ``x`` is sharded so, too. Values never change; outside of shardc's capture ``x`` itself is
    returned.

    Args:
        x: A tensor of any shape.
        layout: An entry for each dim of ``x``: the mesh axis, or list of axes, that shards it, None where
            nothing may, ``"?"`` where propagation may. Dims without an entry are not sharded; ``"whole"``
            shards none.

    Returns:
        A tensor with the values of ``x``.

    Raises:
        BadShardingEntry: An entry is none of these.
        TooManyDims: ``layout`` has more entries than ``x`` has dims.
        UnknownAxis, AxisUsedTwice: Raised by the compile, which knows the mesh.

    Example:
        >>> x = torch.ones(8, 16)
        >>> shardc.constrain(x, ["data", None]) is x
        True
    """
    name = "shardc.constrain"
    text = layout_text(name, layout)
    if (given := len(json.loads(text))) > x.dim():
        raise TooManyDims(name=name, given=given, shape=list(x.shape))
    if not torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling():
        return x
    return torch.ops.shardc.constrain(x, text)
