"""Keys of programs: hashes of a graph's calls with metadata and source lines, settings and versions."""

from __future__ import annotations

import hashlib

import torch
from torch.fx import GraphModule
from torch.multiprocessing.reductions import StorageWeakRef

from shardc.cache.versions import code_versions
from shardc.dynamo.program_cache import call_texts
from shardc.frontend.nodes import UNBACKED_HINT, listed, values_of


def program_key(graph: GraphModule, phase: str, settings: str) -> str:
    """Return the name of a graph's program in the cache."""
    digest = hashlib.sha256("\0".join([phase, settings, *code_versions()]).encode())
    storages: dict[StorageWeakRef, int] = {}
    # Which groups pay, and so the program, depends on the magnitude of the sizes that were seen first.
    digest.update(repr(_magnitudes(graph)).encode())
    for node, call in zip(graph.graph.nodes, call_texts(graph), strict=True):
        tensors = [_tensor(value, storages) for value in values_of(node)]
        other = "" if tensors else str(node.meta.get("val"))
        digest.update("\0".join((*call, *tensors, other)).encode())
    return digest.hexdigest()[:32]


def _magnitudes(graph: GraphModule) -> list[int]:
    """Return the number of bits of each symbolic size in the graph, as it was when the graph was traced."""
    values = (value for node in graph.graph.nodes for value in listed(node.meta.get("val")))
    sizes = (size for v in values for size in (v.shape if isinstance(v, torch.Tensor) else (v,)))
    nodes = {size.node.expr: size.node for size in sizes if isinstance(size, torch.SymInt)}
    hints = (n.shape_env.optimization_hint(e, fallback=UNBACKED_HINT) for e, n in nodes.items())
    return [int(hint).bit_length() for hint in hints]


def _tensor(value: torch.Tensor, storages: dict[StorageWeakRef, int]) -> str:
    """Describe what the compiler may read of a tensor, and which storage of the graph it lies in."""
    storage = storages.setdefault(StorageWeakRef(value.untyped_storage()), len(storages))
    is_strided = value.layout is torch.strided
    form = (tuple(value.shape), value.stride(), value.storage_offset()) if is_strided else ()
    return f"{value.dtype} {value.device} {value.layout} {form} {value.is_conj()} {value.is_neg()} {storage}"
