"""Fusing a graph of ``torch.compile`` whose tensors are on a GPU; what does not compile goes back to ATen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from shardc.backends.triton.folder import write_folder
from shardc.backends.triton.targets import Target
from shardc.diagnostics.fusion import FusionWish
from shardc.driver import module_archive
from shardc.driver.gpu_compile import is_tf32, make_kernels
from shardc.driver.kernels import ALL, Fuse, say_once, strided_results
from shardc.frontend.aot_graph import ImportedGraph
from shardc.runtime.triton_kernels import Modules

PROCESSES = 4
"""That compile a graph's kernels."""


def fuse_graph_for(
    target: Target, make: Callable[[], ImportedGraph], graph: ImportedGraph, numerics: str, fuse: Fuse
) -> tuple[ImportedGraph, Modules | None, bool]:
    """``graph`` fused, with its kernels for ``target``, if it has any, and whether all of them compiled.

    Forms are those of :func:`shardc.driver.kernels.fuse_graph`. Raises FusionWish.
    """
    try:
        return _fused(target, make, graph, numerics, fuse)
    except FusionWish:
        raise
    except Exception as error:  # whatever went wrong in there, ATen has every op
        say_once(ALL, error)
        return make(), None, False


def _fused(
    target: Target, make: Callable[[], ImportedGraph], graph: ImportedGraph, numerics: str, fuse: Fuse
) -> tuple[ImportedGraph, Modules | None, bool]:
    without: frozenset[str] = frozenset()
    with tempfile.TemporaryDirectory(prefix="shardc-kernels-") as name:
        while True:
            fuse(graph.module, numerics, strided_results(graph), without, writes=graph.writes)
            made, failed = make_kernels(graph.module, target, Path(name), PROCESSES, is_tf32())
            if not failed - without:
                break
            without |= failed
            graph = make()
        if not made:
            return graph, None, not without
        write_folder(made, Path(name))
        return graph, module_archive.keep(Path(name)), not without
