"""Counts the collectives that a block of code really issues, whoever issues them, and the bytes that a rank
sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

KINDS: dict[str, tuple[str, int]] = {
    "c10d.allreduce_": ("all_reduce", 0),
    "c10d._allgather_base_": ("all_gather", 1),
    "c10d.allgather_into_tensor_coalesced_": ("all_gather", 1),
    "c10d.allgather_": ("all_gather", 1),
    "c10d._reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d.reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "c10d.alltoall_base_": ("all_to_all", 1),
    "c10d.broadcast_": ("broadcast", 0),
    "_c10d_functional.all_reduce": ("all_reduce", 0),
    "_c10d_functional.all_reduce_": ("all_reduce", 0),
    "_c10d_functional.all_gather_into_tensor": ("all_gather", 0),
    "_c10d_functional.all_gather_into_tensor_out": ("all_gather", 0),
    "_c10d_functional.reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional.all_to_all_single": ("all_to_all", 0),
    "_c10d_functional.broadcast": ("broadcast", 0),
}
"""Operator -> what it is, and which of its arguments holds what this rank puts in."""

SILENT = ("wait_tensor", "barrier", "_wrap_tensor")
"""Operators of these namespaces that carry no data."""


class TrafficMeter(TorchDispatchMode):
    """Within ``with``: calls and bytes by (kind, mesh axis). ``axes`` maps the ranks of a group to the axis'
    name.

    A rank sends what the bandwidth-optimal algorithms need (Chan et al., "Collective communication", 2007),
    which is how shardc's own reports count. Raises KeyError for a collective that it does not know.
    """

    def __init__(
        self, axes: Mapping[tuple[int, ...], str], bytes_moved: Callable[[str, int, float], float]
    ) -> None:
        super().__init__()
        self._axes, self._bytes_moved = axes, bytes_moved
        self.calls: Counter[tuple[str, str]] = Counter()
        self.sent_bytes: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(t is DTensor for t in types):
            return NotImplemented  # DTensor turns it into local ops and collectives, which come by here again
        name = func.name().replace("::", ".").split(".default")[0]
        space, _, base = name.partition(".")
        if space in ("c10d", "_c10d_functional") and not base.startswith(SILENT):
            self._count(name, args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: Any) -> None:
        kind, position = KINDS[name]
        group = _group(args)
        ranks = tuple(dist.get_process_group_ranks(group))
        if len(ranks) == 1:
            return
        key = kind, self._axes.get(ranks, "world")
        size_bytes = sum(t.numel() * t.element_size() for t in _tensors(args[position]))
        self.calls[key] += 1
        self.sent_bytes[key] += round(self._bytes_moved(kind, len(ranks), size_bytes))


def _tensors(arg: Any) -> list[Tensor]:
    return [arg] if isinstance(arg, Tensor) else list(arg)


def _group(args: Any) -> dist.ProcessGroup:
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(arg)
            except RuntimeError:  # a reduction, not a group
                continue
    name: Any = next(
        a for a in reversed(args) if isinstance(a, str)
    )  # functional ones name it, last of their arguments
    return _resolve_process_group(name)
