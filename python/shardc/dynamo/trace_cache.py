"""AOTAutograd's traces on disk. A Dynamo graph that was compiled before is not traced again.

The key is a hash of everything that AOTAutograd and shardc read: the graph's calls with their constants and
source lines, its inputs' metadata and shared memory, PyTorch's state and settings, the backend's options, and
the versions of both. An entry is AOTAutograd's own form of a trace, which names programs of
:mod:`shardc.dynamo.program_cache`; if one is gone, the graph is traced again. Graphs that their hash does not
fully determine are always traced: see :func:`_is_named_by_hash`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.compiler.config
from torch.fx import GraphModule, Node
from torch.fx.node import Target
from torch.multiprocessing.reductions import StorageWeakRef

from shardc.cache import disk
from shardc.cache.scratch import scratch
from shardc.cache.versions import code_versions
from shardc.dynamo import trace_form
from shardc.dynamo.explanations import is_explained
from shardc.dynamo.program_cache import call_texts
from shardc.dynamo.settings import Settings
from shardc.environment import PYTORCH_CACHE, changed
from shardc.runtime import torch_private
from shardc.runtime.report.logs import CACHE
from shardc.runtime.torch_private import (
    FakeTensor,
    Gone,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    compiled_autograd,
    disable_current_modes,
    dynamo_config,
    functorch_config,
    inductor_config,
)

_NAMESPACES = ("aten", "prims", "shardc")
_MODULES = ("torch", "_operator", "builtins", "math")
"""Modules whose functions their names identify, since the hash includes PyTorch's version."""
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
"""Types of tensors without further fields."""
_CONSTANTS = (
    *(bool, int, float, complex, str, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
"""Types of arguments that their text identifies."""


def name_of(graph: GraphModule, inputs: Sequence[torch.Tensor], settings: Settings) -> str | None:
    """Return the name of a graph's trace; None for a graph that is always traced."""
    if not _is_wanted(settings) or not _is_named_by_hash(graph, inputs):
        CACHE.info("a trace is made anew: it is explained or measured, or a hash does not name all of it")
        return None
    targets = {t.device: settings.target_of(t.device) for t in inputs}
    parts = (
        settings.cache_key(),
        code_versions(),
        torch.compiler.config.cache_key_tag,
        _state(),
        [_form(x) for x in inputs],
        _memory(inputs),
        {str(device): target and (target.backend, target.key()) for device, target in targets.items()},
    )
    digest = hashlib.sha256(repr(parts).encode())
    for call in call_texts(graph):
        digest.update("\0".join(call).encode())
    return digest.hexdigest()[:32]


def load(name: str) -> Callable[..., object] | None:
    """Return the function of a graph that was traced before; None if it or one of its programs is missing."""
    found = disk.read(_file(name))
    if found is None:
        return None
    try:
        run = torch_private.trace_from_disk(trace_form.read(found[1]))
    except Gone as reason:
        CACHE.info("%s: of no use: %s", _file(name), reason)
        return None
    except Exception as reason:  # any damage: the graph is traced again
        CACHE.info("%s: of no use: it does not parse: %s", _file(name), reason)
        disk.discard(_file(name))
        return None
    return torch.compiler.disable(run, reason="do not trace AOT-compiled graph")


@contextmanager
def written_down(name: str) -> Iterator[None]:
    """Make AOTAutograd serialize its traces inside the block, with the backward compiled at once.

    This needs PyTorch's own cache, which finds the traces by our name. That cache is a folder of pickles,
    usually in the system's temporary folder, where another user may have created it first. So the block uses
    a private folder.
    """
    entries = functorch_config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True)
    named = torch.compiler.config.patch(cache_key_tag=f"shardc {name}")  # pyright: ignore[reportAttributeAccessIssue]
    with named, entries, scratch() as folder, changed({PYTORCH_CACHE: folder}):
        yield


def keep(name: str, run: Callable[..., object]) -> None:
    """Store AOTAutograd's trace of a graph whose programs are all on disk."""
    write_down = getattr(run, "serialize", None)
    if write_down is None:
        CACHE.info("%s: not kept: AOTAutograd has no form of it for the disk", _file(name))
        return
    try:
        with disable_current_modes():
            content = trace_form.written(write_down())
    except trace_form.NoTrace as reason:
        CACHE.info("%s: not kept: %s", _file(name), reason)
        return
    disk.keep(_file(name), content)


def _file(name: str) -> str:
    return f"trace-{name}.json"


def _is_wanted(settings: Settings) -> bool:
    """Return whether PyTorch's settings and the user's requests allow stored traces.

    ``caching_precompile`` and compiled autograd use traces without checking a hash.
    """
    if torch.compiler.config.force_disable_caches or not functorch_config.enable_autograd_cache:
        return False
    if dynamo_config.caching_precompile or dynamo_config.compiled_autograd:
        return False
    return not (compiled_autograd.compiled_autograd_enabled or settings.kernels.has_edges or is_explained())


def _is_named_by_hash(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> bool:
    """Return whether the hash distinguishes the graph from all others.

    It does not cover users' operators, constants that the graph holds, bodies of higher-order operators,
    annotations, and fields of tensor subclasses. Symbolic sizes would need guards.
    """
    if list(graph.children()):
        return False
    return all(map(_is_plain, inputs)) and all(map(_is_known, graph.graph.nodes))


def _is_plain(value: torch.Tensor) -> bool:
    """Return whether an input is a plain strided tensor with numbers as sizes."""
    if type(value) not in _TENSORS or value.layout is not torch.strided:
        return False
    return all(isinstance(n, int) for n in (*value.shape, *value.stride(), value.storage_offset()))


def _is_known(node: Node) -> bool:
    if node.op not in ("placeholder", "output", "call_method", "call_function") or node.meta.get("custom"):
        return False
    is_known = node.op != "call_function" or _is_pytorchs(node.target)
    return is_known and _is_constant((node.args, node.kwargs))


def _is_constant(value: object) -> bool:
    """Return whether an argument consists of nodes and of values that their text identifies."""
    if isinstance(value, tuple | list):
        return all(map(_is_constant, value))
    if isinstance(value, dict):
        return all(map(_is_constant, value.items()))
    if isinstance(value, slice):
        return _is_constant((value.start, value.stop, value.step))
    return isinstance(value, Node) or type(value) in _CONSTANTS


def _is_pytorchs(target: Target) -> bool:
    if isinstance(target, HigherOrderOperator):
        return False
    if isinstance(target, OpOverload):
        return target.namespace in _NAMESPACES
    if isinstance(target, OpOverloadPacket):
        return str(target).partition(".")[0] in _NAMESPACES
    module = getattr(target, "__module__", None)  # none for the functions of torch._C
    return module is None or module.partition(".")[0] in _MODULES


def _form(x: torch.Tensor) -> tuple[object, ...]:
    """Return what AOTAutograd reads of an input, except its memory."""
    flags = (x.requires_grad, x.is_leaf, x.is_conj(), x.is_neg(), x.is_inference())
    return type(x).__name__, x.dtype, x.device, tuple(x.shape), x.stride(), *flags


def _memory(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Return the storage and offset of each tensor, since shared memory changes a trace."""
    storages: dict[StorageWeakRef, int] = {}
    return [
        (storages.setdefault(StorageWeakRef(t.untyped_storage()), len(storages)), int(t.storage_offset()))
        for t in tensors
    ]


def _state() -> tuple[object, ...]:
    """Return PyTorch's global state and settings that a trace or a program may depend on."""
    backends = torch.backends
    return (
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_cache_enabled()),
        [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        *(torch.get_default_dtype(), torch.get_default_device(), torch.get_float32_matmul_precision()),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,  # pyright: ignore[reportAttributeAccessIssue]
        *(backends.mkldnn.enabled, backends.cudnn.enabled),
        *(backends.opt_einsum.enabled, backends.opt_einsum.strategy),
        *(backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled()),
        *(backends.cuda.math_sdp_enabled(), backends.cuda.cudnn_sdp_enabled()),
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        *(functorch_config.get_hash(), inductor_config.get_hash()),
    )
