"""AOTAutograd's trace of a graph: functional, forward and backward, decomposed for the importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from functorch.compile import default_partition
from torch.fx import GraphModule

from shardc.dynamo import trace_cache
from shardc.dynamo.explanations import is_explained, note_choices
from shardc.dynamo.joint_partition import SAVING
from shardc.dynamo.program import Compiler, GraphProgram, Runner
from shardc.dynamo.settings import Settings
from shardc.frontend.fake_results import with_corrections
from shardc.frontend.graph.flat_indices import flat_index_table
from shardc.frontend.graph.foreach import fma_table, foreach_table
from shardc.frontend.graph.graph_random import GraphStream, seeded
from shardc.frontend.graph.large_windows import large_window_table
from shardc.frontend.graph.last_channels import last_channels_table
from shardc.frontend.graph.long_scans import long_scan_table
from shardc.frontend.graph.small_products import small_product_table
from shardc.frontend.operators import Table
from shardc.frontend.operators.complex_numbers import complex_table
from shardc.frontend.operators.decompositions import decomposition_table
from shardc.runtime.torch_private import OutputCode, SerializableCompiler, aot_autograd

aten = torch.ops.aten
_LISTS = (
    *(aten.split.Tensor, aten.split_with_sizes.default, aten.split_with_sizes_copy.default),
    *(aten.unbind.int, aten.unbind_copy.int),
    *(aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default),
)
"""Ops that return lists, for which the IR has no type.

Their decompositions give views, or copies of views.
"""


def tables() -> Table:
    """Return decompositions of ops that the IR cannot express, with corrections of fake results."""
    table = decomposition_table()
    lists = {op: table[op] for op in _LISTS}
    return with_corrections(lists | foreach_table() | fma_table() | complex_table() | flat_index_table())


def _simplified() -> Table:
    """Return decompositions of ops that kernels compute in other forms than ATen."""
    return SAVING | small_product_table() | large_window_table() | last_channels_table() | long_scan_table()


def traced(
    settings: Settings,
    graph: GraphModule,
    example_inputs: Sequence[object],
    name: str | None,
    compilers: Mapping[str, Compiler],
    cut: Callable[..., tuple[GraphModule, GraphModule]],
) -> Callable[..., object]:
    """Trace, split and compile the graph; return a function that runs it.

    ``cut`` splits the graph if kernels may be fused.

    The trace is stored on disk under ``name``, unless that is None or one of its programs is not on disk.
    """
    programs: list[GraphProgram] = []
    form = _as_function if name is None else partial(_as_entry, programs)
    draws = GraphStream() if settings.numerics.random == "counter" else None
    tensors = [t for t in example_inputs if isinstance(t, torch.Tensor)]
    fuses = settings.kernels.fuse and all(settings.target_of(t.device) for t in tensors)
    trace = aot_autograd(
        **{kind: form(compiler) for kind, compiler in compilers.items()},
        decompositions={
            **tables(),
            **(draws.table() if draws else {}),
            **(_simplified() if fuses else {}),
        },
        partition_fn=cut if fuses else default_partition,
        keep_inference_input_mutations=True,
    )
    with (
        seeded(graph) if draws else nullcontext(),
        nullcontext() if name is None else trace_cache.written_down(name),
        attention_of_targets(settings, example_inputs),
    ):
        run = trace(graph, example_inputs)
    if name is not None and all(program.key is not None for program in programs):
        trace_cache.keep(name, run)
    return run


def _as_entry(programs: list[GraphProgram], compiler: Compiler) -> object:
    """Adapt a compiler to a trace that is stored; compiled programs are added to ``programs``."""

    def compile_(graph: GraphModule, example_inputs: Sequence[object]) -> GraphProgram:
        programs.append(compiler(graph, example_inputs))
        return programs[-1]

    return SerializableCompiler(OutputCode, compile_)


def _as_function(compiler: Compiler) -> Callable[..., Runner]:
    """Adapt a compiler to a trace that is not stored; this adds no cost to calls of the program."""
    return lambda graph, example_inputs: compiler(graph, example_inputs).run


def attention_of_targets(settings: Settings, inputs: Sequence[object]) -> AbstractContextManager[object]:
    """Trace graphs of these inputs inside the block with ``shardc::attention``, for kernels and libraries.

    This applies if the target has kernels for any attention and the options ask for them. ``explain_fusion``
    reports each attention that stays PyTorch's.
    """

    def is_able(device: torch.device) -> bool:
        target = settings.target_of(device)
        return target is not None and target.capabilities.any_attention

    kernels = settings.kernels
    wanted = kernels.is_measured if kernels.matmuls == "auto" else kernels.matmuls == "generated"
    devices = dict.fromkeys(value.device for value in inputs if isinstance(value, torch.Tensor))
    if not (wanted and any(map(is_able, devices))):
        return nullcontext()
    from shardc.frontend.graph.graph_attention import GraphAttention

    return GraphAttention(is_able, _note_left)


def _note_left(line: str | None, why: str) -> None:
    if not is_explained():
        return
    # Late imports: they load MLIR, which a start from the caches does not need.
    from shardc.passes.fuse.grouping.explain import Op, Traffic
    from shardc.passes.fuse.grouping.region import Verdict

    op = Op("attention", "aten.scaled_dot_product_attention", line, "", Traffic())
    note_choices([(op, Verdict(False, f"it stays PyTorch's: {why}"))])
