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
    """``x``, which a compiled step has lie on the mesh as ``layout`` says.

    ``layout`` has an entry for each dim of ``x``: the mesh axis, or axes, that cut it, None where nothing
    may, ``"?"`` where propagation may; ``"whole"`` cuts no dim. Dims without an entry are not cut. The
    gradient of ``x`` lies so, too. Values never change; outside of shardc's capture ``x`` itself is returned.

        hidden = shardc.constrain(self.up(x), ["data", None, "tensor"])

    Raises BadShardingEntry, TooManyDims; the compile raises UnknownAxis and AxisUsedTwice.
    """
    name = "shardc.constrain"
    text = layout_text(name, layout)
    if (given := len(json.loads(text))) > x.dim():
        raise TooManyDims(name=name, given=given, shape=list(x.shape))
    if not torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling():
        return x
    return torch.ops.shardc.constrain(x, text)
