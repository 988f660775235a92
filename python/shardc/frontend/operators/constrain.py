"""``shardc.constrain``: sharding of a tensor, given in a model's code."""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch

import shardc.runtime.operators.constrain  # noqa: F401  (registers shardc::constrain)
from shardc.diagnostics.passes.plan import TooManyDims
from shardc.dialects.dist.layout_text import layout_text

Layout = str | Sequence[object]


def constrain(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Constrain the sharding of an activation in a compiled step, from a model's code.

    The gradient of ``x`` gets the same sharding. Values do not change. Outside of shardc's capture this
    returns ``x`` itself.

    Args:
        x: A tensor of any shape.
        layout: An entry for each dim of ``x``: the mesh axis, or list of axes, that shards it; None to shard
            it by no axis; ``"?"`` to let propagation choose. Dims without an entry are not sharded;
            ``"whole"`` shards none.

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
