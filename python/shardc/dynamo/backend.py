"""``torch.compile(model, backend="shardc")``: compiles Dynamo's graphs, forward and backward, for one device.

AOTAutograd supplies functional graphs. Each is imported into the torch dialect, goes through passes, and
(``compile_graph.py``) becomes a Python function that calls ATen ops and kernels, compiled for the CPU or by
Triton for the GPU. ``TORCH_LOGS="+shardc.dynamo.backend"`` prints it. Sizes may be symbolic: a model called
with a second batch size is traced and compiled once more, for all sizes.

A graph that the importer rejects runs as AOTAutograd traced it. A graph that AOTAutograd cannot trace runs as
Dynamo captured it. A :class:`~shardc.diagnostics.dynamo.ShardcFallbackWarning` reports each cause once. Later
processes read AOTAutograd's traces (``trace_cache.py``) and programs (``program_cache.py``) from disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from shardc.compiler.warn_once import cause_of, warn_once
from shardc.diagnostics.catalogue import check_silenced
from shardc.diagnostics.dynamo import GraphFailed, GraphNotCompiled, GraphNotTraced, ShardcFallbackWarning
from shardc.diagnostics.passes.fusion import FusionConstraintError
from shardc.dynamo import trace_cache
from shardc.dynamo.explanations import forget_choices, warn_unmatched
from shardc.dynamo.program import Compiler, GraphProgram
from shardc.dynamo.settings import Settings
from shardc.frontend.importing.recorder import BACKWARD, FORWARD
from shardc.runtime import torch_private
from shardc.runtime.report import progress
from shardc.runtime.report.logs import start as start_logs
from shardc.runtime.torch_private import TorchDynamoException

if TYPE_CHECKING:
    from shardc.passes.fuse.grouping.constraints import FusionConstraints

log = logging.getLogger(__name__)


@progress.work("torch.compile")
def shardc_backend(
    graph: GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., object]:
    """Compile a graph; PyTorch registers this function as the backend ``shardc``.

    ``options``: fields of :class:`~shardc.options.kernels.Kernels` and
    :class:`~shardc.options.numerics.Numerics`, such as ``{"fuse": False}``; ``docs/reference/options.md``
    lists them. ``mode="reduce-overhead"`` of ``torch.compile`` sets ``cuda_graphs``.

    Raises what :meth:`Settings.of` raises, and FusionRefused.
    """
    asked = dict(options.pop("options", None) or {})
    if options.pop("mode", None) == "reduce-overhead":
        asked = {"cuda_graphs": True} | asked
    start_logs()
    check_silenced()
    settings = Settings.of(asked)
    name = trace_cache.name_of(graph, example_inputs, settings)
    if name is not None and (run := trace_cache.load(name)) is not None:
        return run
    forget_choices()
    try:
        return _traced(settings, graph, example_inputs, name)
    except (TorchDynamoException, ShardcFallbackWarning, FusionConstraintError):
        raise  # Dynamo restarts, warnings are errors by the user's choice, or a constraint cannot be met
    except Exception as error:
        log.debug("a graph could not be traced by AOTAutograd", exc_info=True)
        warn_once(GraphNotTraced(error=cause_of(error)), f"graph: {cause_of(error)}")
        return graph.forward


def _traced(
    settings: Settings, graph: GraphModule, example_inputs: Sequence[object], name: str | None
) -> Callable[..., object]:
    from shardc.dynamo.trace import traced  # takes half a second, which a start from the caches saves

    constraints = settings.constraints() if settings.kernels.has_edges else None
    compile_ = partial(_compile, settings, constraints)
    compilers = {
        "fw_compiler": partial(compile_, FORWARD, False),
        "bw_compiler": partial(_last, constraints, partial(compile_, BACKWARD, False)),
        "inference_compiler": partial(_last, constraints, partial(compile_, FORWARD, True)),
    }
    return traced(settings, graph, example_inputs, name, compilers, partial(_cut, settings))


def _cut(
    settings: Settings, joint: GraphModule, inputs: Sequence[object], **given: object
) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph into forward and backward, after fusing kernels that span both."""
    from shardc.dynamo.joint_partition import partition
    from shardc.frontend.graph.strided_views import drop_strided_views

    drop_strided_views(joint)
    _fuse_losses(settings, joint)
    parts = partial(partition, joint, inputs, **given)
    if not settings.kernels.has_edges:
        from shardc.dynamo.compile_graph import compile_apart

        compile_apart(settings, joint, partial(_compile_parts, settings, parts))
    return parts()


def _compile_parts(settings: Settings, parts: Callable[[], tuple[GraphModule, GraphModule]]) -> None:
    """Compile forward and backward in a child, which keeps their programs for this process."""
    from shardc.dynamo.lowered import keep_lowered

    keep_lowered()
    for phase, part in zip((FORWARD, BACKWARD), parts(), strict=True):
        _compile(settings, None, phase, False, part, ())


def _fuse_losses(settings: Settings, graph: GraphModule) -> None:
    """Fuse kernels that span forward and backward, in a joint graph or a forward without backward."""
    values = (n.meta.get("val") for n in graph.graph.nodes)
    devices = dict.fromkeys(value.device for value in values if isinstance(value, torch.Tensor))
    targets = [target for device in devices if (target := settings.target_of(device)) is not None]
    able = [target for target in targets if target.capabilities.linear_losses]
    if len(able) == 1 and settings.kernels.matmuls != "extern":
        # Late import: it loads MLIR, which a start from the caches does not need.
        from shardc.dynamo.graph_losses import fuse_losses

        fuse_losses(graph, settings, able[0])


def _last(
    constraints: FusionConstraints | None,
    compiler: Compiler,
    graph: GraphModule,
    example_inputs: Sequence[object],
) -> GraphProgram:
    """Compile the last graph of a model, then warn of edges that matched none of its graphs."""
    program = compiler(graph, example_inputs)
    if constraints is not None:
        warn_unmatched(constraints)
    return program


def _compile(
    settings: Settings,
    constraints: FusionConstraints | None,
    phase: str,
    is_inference: bool,
    graph: GraphModule,
    example_inputs: Sequence[object],
) -> GraphProgram:
    """Compile a graph; if that fails, run the graph as the backend ``aot_eager`` does."""
    from shardc.dynamo import compile_graph as graph_compiler
    from shardc.dynamo.checks import lift_checks
    from shardc.frontend.graph.graph_random import drop_unread_seed
    from shardc.frontend.graph.strided_views import drop_strided_views

    drop_unread_seed(graph)
    drop_strided_views(graph)
    checks = lift_checks(graph)
    try:
        if is_inference:
            _fuse_losses(settings, graph)
        return graph_compiler.compile_graph(settings, constraints, phase, graph, is_inference, checks)
    except FusionConstraintError:
        raise
    except GraphNotCompiled as cause:
        warn_once(cause, f"graph: {cause.fields['op']} {cause.fields['reason']}")
    except Exception as error:  # the user's model has a graph that runs, whatever failed here
        log.debug("a graph could not be compiled", exc_info=True)
        warn_once(GraphFailed(error=cause_of(error)), f"graph: {cause_of(error)}")
    graph.recompile()
    run = torch_private.boxed_nop(graph, list(example_inputs))
    return GraphProgram(run, is_complex=graph_compiler.is_complex(graph), checks=checks)
