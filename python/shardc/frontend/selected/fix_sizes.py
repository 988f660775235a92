"""``fix_sizes``: replaces symbolic sizes in a trace's graph by fixed ones."""

from __future__ import annotations

from torch.fx import GraphModule

# Each module registers the operators that it handles.
from shardc.frontend.importing.cleanup import drop_effects, remove_dead_nodes
from shardc.frontend.selected import elementwise, indexing, pieces, scalars, sums, views  # noqa: F401
from shardc.frontend.selected.rewriter import Rewriter


def fix_sizes(module: GraphModule) -> None:
    """Rewrite the graph of ``module`` in place; arguments and results keep their shapes.

    Facts that the trace checked about sizes are assumed, and not checked in a step. Raises
    SizeDependsOnValues.
    """
    drop_effects(module.graph)
    remove_dead_nodes(module.graph)
    Rewriter(module.graph).run()
