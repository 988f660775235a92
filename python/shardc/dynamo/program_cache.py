"""Programs of ``torch.compile``'s graphs on disk. A graph that was compiled before is not imported again.

The key is a hash of everything that determines the program's text: the graph's calls with their metadata and
source lines, the backend's settings, the versions of torch and of shardc, the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from shardc.backends.registry import backend_class
from shardc.cache import disk
from shardc.runtime.kernels.library import BadLibrary
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.report.logs import CACHE


def load(key: str) -> tuple[str, Kernels | None] | None:
    """Return the program's text and the library of its kernels, if both are complete on disk.

    An entry that does not parse, or a library that does not open, is removed; the caller compiles it again.
    """
    name = _file(key)
    found = disk.read(name)
    if found is None:
        return None
    try:
        stored: dict[str, Any] = json.loads(found[1])
        text, library, backend = stored["text"], stored["library"], stored["backend"]
        compile(text, name, "exec")
        if library is None:
            return text, None
        target = backend_class(backend)
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        return _discarded(name, error)
    path = target.find(library)
    if path is None:
        return None
    try:
        return text, target.load(path)
    except BadLibrary as error:
        return _discarded(library, error)


def _discarded(name: str, error: Exception) -> None:
    CACHE.info("%s: of no use: %s", name, error)
    if disk.OUR_NAME.fullmatch(name):
        disk.discard(name)


def _file(key: str) -> str:
    return f"graph-{key}.json"


def store(key: str, text: str, backend: str = "", library: Path | None = None) -> None:
    """Store a program for later processes, with the backend that made its kernels."""
    content = {"text": text, "backend": backend, "library": None if library is None else library.name}
    disk.keep(_file(key), json.dumps(content).encode())


def call_texts(graph: GraphModule) -> Iterator[tuple[str, ...]]:
    """Yield each node as text: operation, an input's name, callee, arguments, and the user's lines."""
    numbers: dict[Node, int] = {}
    for node in graph.graph.nodes:
        numbers[node] = len(numbers)
        arguments = torch.fx.map_arg((node.args, node.kwargs), lambda n: _Number(numbers[n]))
        name = node.name if node.op in ("placeholder", "get_attr") else ""
        yield node.op, name, _called(node.target), repr(arguments), node.meta.get("stack_trace") or ""


def _called(target: Target) -> str:
    """Return a function's qualified name, because its text contains an address."""
    name = getattr(target, "__qualname__", None)
    return str(target) if name is None else f"{target.__module__}.{name}"


class _Number(int):
    """A node's number, printed unlike any integer argument."""

    def __repr__(self) -> str:
        return f"%{int(self)}"
