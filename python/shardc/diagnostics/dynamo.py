"""Warnings of ``torch.compile(backend="shardc")`` about graphs and kernels that run through ATen instead."""

from shardc.diagnostics.base import ShardcError
from shardc.runtime.report.messages import ShardcWarning


class ShardcFallbackWarning(ShardcWarning):
    """A graph of ``torch.compile(backend="shardc")`` runs through ATen; reported once per cause."""


class GraphNotCompiled(ShardcError):
    """A graph contains something that shardc's importer rejects, so all of it runs through ATen.

    Falls back: ``x * 1j`` in a model. Compiles: the same with the number as a tensor, ``x * i``.
    """

    template = "shardc runs a graph through ATen, uncompiled, because of {op}: {reason}"
    hint = "results are those of eager PyTorch; rewrite this line to have the graph compiled"


class GraphFailed(ShardcError):
    """A bug in shardc, or in a library under it, prevented compiling a graph, which runs through ATen."""

    template = "shardc failed on a graph, which runs through ATen, uncompiled: {error}"
    hint = "results are those of eager PyTorch; please report this message with the model"


class GraphNotTraced(ShardcError):
    """AOTAutograd, which traces forward and backward for shardc, failed on a graph, which runs eagerly."""

    template = "shardc runs a graph eagerly, because PyTorch's AOTAutograd could not trace it: {error}"
    hint = 'results are those of eager PyTorch; torch.compile(backend="aot_eager") stops with this error'


class KernelNotCompiled(ShardcError):
    """A fused group's kernel could not be compiled, so its ops run through ATen, one by one."""

    template = "shardc could not compile a kernel of {ops}, which run through ATen: {error}"
    hint = "results are right; please report this message with the model"


class OtherDevice(ShardcError):
    """The kernels' target is another device than the graph's, so the graph's ops run through ATen.

    Falls back: ``options={"target": "sm_90"}`` for a model on the CPU. Compiles: the same without ``target``.
    """

    template = (
        "kernels for {target} do not run on {device}, which holds this graph's tensors; its ops run "
        "through ATen"
    )
    hint = "results are right; leave out the target, or move the model to a device of that target"


class NoCudaGraph(ShardcError):
    """A graph cannot be captured as a CUDA graph, so its program runs without one.

    Runs without: ``options={"cuda_graphs": True}`` for a model on the CPU, or one that calls ``x.item()``.
    Is captured: a model whose tensors are on a GPU, and whose ops do not wait for it.
    """

    template = "shardc runs a graph of torch.compile without a CUDA graph: {reason}"
    hint = 'results are right; leave out options={{"cuda_graphs": True}} to stop this warning'
