"""What AOTAutograd traced, kept on disk: a graph of Dynamo's that was compiled before is not traced again.

The cache is PyTorch's own (``torch._functorch._aot_autograd.autograd_cache``, beside Inductor's on disk). It finds an
entry by the hash of Dynamo's graph, of its inputs' metadata and of PyTorch's settings; what else a program of shardc
depends on joins that hash as ``cache_key_tag``. An entry names programs of :mod:`shardc.driver.program_cache`; where
one is gone, it is no entry. Graphs that may mean something else than their hash says are traced each time: see
:func:`_is_named_by_hash`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
import torch.compiler.config
from torch._dynamo import compiled_autograd
from torch._functorch._aot_autograd import autograd_cache
from torch.fx import GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from shardc.driver.fusion import is_explained
from shardc.driver.gpu_target import gpu_target
from shardc.driver.lean_hash import without_inductor
from shardc.driver.program_cache import versions
from shardc.driver.settings import Settings

_NAMESPACES = ("aten", "prims", "shardc")
_MODULES = ("torch", "_operator", "builtins", "math")
"""Whose functions are what their names say: PyTorch's version is part of the hash."""


@contextmanager
def kept_on_disk(graph: GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Iterator[bool]:
    """Inside the block AOTAutograd keeps what it traces, if the block is given True.

    It compiles the backward with the forward then, so that both are one entry.
    """
    if not is_wanted(settings) or not _is_named_by_hash(graph, example_inputs):
        yield False
        return
    tag = f"{torch.compiler.config.cache_key_tag} shardc {surroundings(example_inputs, settings)} {_lines(graph)}"
    entries = torch._functorch.config.patch(
        bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
    )
    lean = patch.object(
        autograd_cache, "autograd_cache_key", without_inductor(autograd_cache.autograd_cache_key)
    )
    with torch.compiler.config.patch(cache_key_tag=tag), entries, lean:
        yield True


def is_wanted(settings: Settings) -> bool:
    """Whether traces may be kept at all: by PyTorch's settings, and by what the user wants to see of a compile.

    ``caching_precompile`` and compiled autograd use entries without looking at the hash.
    """
    on = (
        autograd_cache.should_use_local_autograd_cache() and torch._inductor.config.fx_graph_cache
    )  # it asks for both
    config = torch._dynamo.config
    if config.caching_precompile or config.compiled_autograd or compiled_autograd.compiled_autograd_enabled:
        return False
    return bool(on) and not settings.has_edges and not is_explained()


def _is_named_by_hash(graph: GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether PyTorch's hash tells the graph from all others.

    It does not see into operators of users, constants that the graph holds, the bodies of higher-order operators and
    the fields of tensor subclasses; symbolic sizes would bring guards.
    """
    if list(graph.children()):
        return False
    return all(_is_plain(value) for value in example_inputs) and all(
        _is_known(node) for node in graph.graph.nodes
    )


def _is_plain(value: Any) -> bool:
    """Whether an input is a tensor and nothing more, of sizes that are numbers."""
    if not isinstance(value, torch.Tensor) or is_traceable_wrapper_subclass(value):
        return False
    return value.layout is torch.strided and all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def _is_known(node: Node) -> bool:
    target = node.target
    if node.op != "call_function":
        return node.op in ("placeholder", "output", "call_method")
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _NAMESPACES
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.partition("::")[0] in _NAMESPACES
    module = getattr(target, "__module__", None)  # none for the functions of torch._C
    return module is None or module.partition(".")[0] in _MODULES


def surroundings(inputs: Sequence[torch.Tensor], settings: Settings) -> str:
    """A hash of what a program depends on and PyTorch's hash leaves out, but for the user's lines."""
    backends = torch.backends
    state = (
        torch.get_default_device(), torch.get_float32_matmul_precision(), backends.mkldnn.enabled,
        backends.opt_einsum.enabled, backends.opt_einsum.strategy,
        backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(),
        backends.cuda.cudnn_sdp_enabled(),
    )  # fmt: skip
    gpus = {str(t.device): gpu_target(t.device) for t in inputs}
    return hashlib.sha256(
        repr((settings.cache_key(), versions(), state, gpus, _memory(inputs))).encode()
    ).hexdigest()


def _lines(graph: GraphModule) -> str:
    """A hash of the user's lines, which programs name."""
    digest = hashlib.sha256()
    for node in graph.graph.nodes:
        digest.update((node.meta.get("stack_trace") or "").encode() + b"\0")
    return digest.hexdigest()


def _memory(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor which of their memories it lies in, and where in it:
    inputs that share memory are traced otherwise.
    """
    storages: dict[StorageWeakRef, int] = {}
    return [
        (storages.setdefault(StorageWeakRef(t.untyped_storage()), len(storages)), int(t.storage_offset()))
        for t in tensors
    ]
