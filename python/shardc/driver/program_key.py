"""What a graph's program is found by: the hash of its calls with their metadata and source lines,
settings and versions.
"""

from __future__ import annotations

import hashlib

import torch
from torch.fx import GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef

from shardc.driver.program_cache import versions
from shardc.frontend.graph_check import values_of
from shardc.frontend.sizes import SizeTable


def program_key(graph: GraphModule, phase: str, settings: str) -> str:
    """The name of a graph's program in the cache."""
    digest = hashlib.sha256("\0".join([phase, settings, *versions()]).encode())
    numbers: dict[Node, int] = {}
    storages: dict[StorageWeakRef, int] = {}
    # Which groups pay, and so the program, depends on the sizes that were seen first: on how large they are, roughly.
    digest.update(repr([n.bit_length() for n in SizeTable(graph.graph).hints]).encode())
    for node in graph.graph.nodes:
        numbers[node] = len(numbers)
        arguments = torch.fx.map_arg((node.args, node.kwargs), lambda n: _Number(numbers[n]))
        name = node.name if node.op in ("placeholder", "get_attr") else ""
        tensors = [_tensor(value, storages) for value in values_of(node)]
        other = "" if tensors else str(node.meta.get("val"))
        parts = (
            node.op,
            name,
            str(node.target),
            repr(arguments),
            *tensors,
            other,
            node.meta.get("stack_trace") or "",
        )
        digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:32]


class _Number(int):
    """A node by its number, which no integer argument is printed like."""

    def __repr__(self) -> str:
        return f"%{int(self)}"


def _tensor(value: torch.Tensor, storages: dict[StorageWeakRef, int]) -> str:
    """What the compiler may ask of a tensor, and which of a graph's memories it lies in."""
    storage = storages.setdefault(StorageWeakRef(value.untyped_storage()), len(storages))
    form = (
        (tuple(value.shape), value.stride(), value.storage_offset()) if value.layout is torch.strided else ()
    )
    return f"{value.dtype} {value.device} {value.layout} {form} {value.is_conj()} {value.is_neg()} {storage}"
