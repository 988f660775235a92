"""Modules of a model that the patterns of ``constraints=`` match."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch import nn

from shardc.diagnostics.passes.plan import ConstrainsNothing
from shardc.dialects.dist.layout_text import layout_text
from shardc.frontend.step.constrained import Layouts, Wanted
from shardc.step.foreign.names import modules_named, nearest


def layouts_of(model: nn.Module, constraints: Mapping[str, object] | None) -> Layouts:
    """Return the layout of each module that a pattern matches. The first matching pattern counts.

    Each dotted part of a pattern matches one part of a name, as in ``parallelize_module``.

    Raises ConstrainsNothing, BadShardingEntry.
    """
    found: dict[str, Wanted] = {}
    for pattern, layout in (constraints or {}).items():
        matching = [name for name, _ in modules_named(model, pattern)]
        if not matching:
            names = nearest(pattern, [name for name, _ in model.named_modules() if name])
            problem = f"which no module is called; the nearest are {names}"
            raise ConstrainsNothing(pattern=pattern, problem=problem)
        text = layout_text(pattern, layout)
        found = dict.fromkeys(matching, Wanted(pattern, text, len(json.loads(text)))) | found
    return found
