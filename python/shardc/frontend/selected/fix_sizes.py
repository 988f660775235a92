"""``fix_sizes``: the graph of a trace with symbolic sizes, with fixed ones."""

from __future__ import annotations

from torch.fx import GraphModule

# Each registers the operators that it knows.
from shardc.frontend.importing.cleanup import drop_effects, remove_dead_nodes
from shardc.frontend.selected import elementwise, indexing, pieces, scalars, sums, views  # noqa: F401
from shardc.frontend.selected.rewriter import Rewriter


def fix_sizes(module: GraphModule) -> None:
    """Rewrites the graph of ``module`` in place; arguments and results keep their shapes.

    What the trace has checked of sizes is taken to be so, and not checked in a step. Raises
    SizeDependsOnValues.
    """
    drop_effects(module.graph)
    remove_dead_nodes(module.graph)
    Rewriter(module.graph).run()
