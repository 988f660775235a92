"""Programs of ``torch.compile``'s graphs kept on disk: a graph that was compiled before is not even imported.

A program is found by the hash of all that decided its text: the graph's calls with their metadata and source lines,
the backend's settings, the versions of torch and of shardc, the CPU.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef

import shardc
from shardc.backends.cpu import cache as disk
from shardc.backends.cpu.target import host_model, host_target
from shardc.frontend.graph_check import values_of
from shardc.frontend.sizes import SizeTable
from shardc.runtime.kernels import SEAL, Library


def program_key(graph: GraphModule, phase: str, settings: str) -> str:
    """The name of a graph's program in the cache."""
    digest = hashlib.sha256("\0".join([phase, settings, *_versions()]).encode())
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
        parts = (node.op, name, str(node.target), repr(arguments), *tensors, other, node.meta.get("stack_trace") or "")
        digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:32]


class _Number(int):
    """A node by its number, which no integer argument is printed like."""

    def __repr__(self) -> str:
        return f"%{int(self)}"


def _tensor(value: torch.Tensor, storages: dict[StorageWeakRef, int]) -> str:
    """What the compiler may ask of a tensor, and which of a graph's memories it lies in."""
    storage = storages.setdefault(StorageWeakRef(value.untyped_storage()), len(storages))
    form = (tuple(value.shape), value.stride(), value.storage_offset()) if value.layout is torch.strided else ()
    return f"{value.dtype} {value.device} {value.layout} {form} {value.is_conj()} {value.is_neg()} {storage}"


@cache
def _versions() -> tuple[str, ...]:
    """All of shardc's own code is part of the key, and what it is compiled for."""
    digest = hashlib.sha256()
    for file in sorted(_sources()):
        digest.update(file.read_bytes())
    return version("torch"), version("torch-mlir"), digest.hexdigest(), host_target(), host_model()


def _sources() -> Iterable[Path]:
    root = Path(shardc.__file__).parent
    for folder in (root, *(root / name for name in ("dialects", "passes", "backends"))):  # these three may be links
        yield from folder.resolve().rglob("*.py")


def load(key: str) -> tuple[str, Library | None] | None:
    """The text of the program and the library of its kernels, if both are there whole."""
    path = disk.find(f"graph-{key}.json")
    if path is None:
        return None
    stored: dict[str, Any] = json.loads(path.read_bytes()[: -len(SEAL) - 32])
    if stored["library"] is None:
        return stored["text"], None
    library = disk.find(stored["library"])
    return None if library is None else (stored["text"], Library(library))


def store(key: str, text: str, library: Library | None) -> None:
    """Keeps a program for later processes."""
    content = {"text": text, "library": None if library is None else library.path.name}
    disk.keep(f"graph-{key}.json", json.dumps(content).encode())
