"""Features of a kernel for the cost model: work, bytes, sizes and structure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.dialects.kern.attention_maps import read_attention
from shardc.dialects.kern.generic import GENERIC, GenericLoops

UNKNOWN_SIZE = 512
"""Assumed size of a dim that is known only at run time."""
SLOW = ("math.", "arith.divf", "arith.remf")
"""Prefixes of names of ops that take many instructions."""


@dataclass(frozen=True)
class KernelFeatures:
    """Features of a kernel.

    ``values``: features by name; log2 of those that grow with sizes. ``sizes``: sizes of the loops ``m``,
    ``n`` and ``k`` (the reduced one) of the op with the most work. ``element_bytes``: bytes of an input's
    element. ``family``: hash of the ops without their sizes.
    """

    values: Mapping[str, float]
    sizes: Mapping[str, int]
    element_bytes: int
    family: str


@dataclass
class _Counts:
    work: float = 0.0
    slow: float = 0.0
    ops: int = 0
    reductions: int = 0
    most: float = -1.0
    sizes: dict[str, int] = field(default_factory=lambda: {"m": 1, "n": 1, "k": 1})
    said: list[str] = field(default_factory=list)


@lru_cache(maxsize=1024)
def kernel_features(text: str) -> KernelFeatures:
    """Return the features of a kernel from the text of its :class:`~shardc.backends.tuning.task.Task`."""
    module = ir.Module.parse(text, new_context())
    function = module.body.operations[0].operation
    counts = _Counts()
    for view in function.regions[0].blocks[0].operations:
        _count(view.operation, counts)
    block = function.regions[0].blocks[0]
    read = [_bytes(a.type) for a in block.arguments]
    written = [_bytes(v.type) for v in list(block.operations)[-1].operation.operands]
    total = sum(read) + sum(written)
    values = {
        "work": _log(counts.work),
        "slow": _log(counts.slow),
        "bytes": _log(total),
        "written": _log(sum(written)),
        "intensity": _log(counts.work / max(1.0, total)),
        "ops": float(counts.ops),
        "reductions": float(counts.reductions),
        "inputs": float(len(read)),
        "outputs": float(len(written)),
        **{name: _log(counts.sizes[name]) for name in "mnk"},
    }
    widths = [_width(a.type) for a in block.arguments if isinstance(a.type, ir.RankedTensorType)]
    element = min((w for w in widths if w > 1), default=4)
    values["element_bytes"] = float(element)
    family = hashlib.sha256(" ".join(counts.said).encode()).hexdigest()[:16]
    return KernelFeatures(values, counts.sizes, element, family)


def _log(value: float) -> float:
    return math.log2(1.0 + value)


def _count(op: ir.Operation, counts: _Counts) -> None:
    counts.said += [op.name, *(_kind(v.type) for v in (*op.operands, *op.results))]
    if op.name == GENERIC:
        _generic(op, counts)
    elif op.name in ("kern.attention", "kern.attention_backward"):
        _attention(op, counts)
    elif op.name.startswith(("linalg.", "kern.")):
        counts.ops += 1


def _generic(op: ir.Operation, counts: _Counts) -> None:
    loops = GenericLoops(op)
    reduces, sizes = list(loops.reduces), [max(1, size) for size in loops.typed_sizes(UNKNOWN_SIZE)]
    names = [inner.name for inner in loops.body_ops]
    texts = [str(ir.AffineMapAttr(a).value) for a in op.attributes["indexing_maps"]]
    counts.said += [str(reduces), *texts, *names]
    times = float(prod(sizes))
    counts.ops += 1
    counts.reductions += any(reduces)
    counts.work += times * max(1, len(names))
    counts.slow += times * sum(name.startswith(SLOW) for name in names)
    if times * (1 + any(reduces)) >= counts.most:
        counts.most = times * (1 + any(reduces))
        counts.sizes = _letters(loops, sizes)


def _letters(loops: GenericLoops, sizes: list[int]) -> dict[str, int]:
    """Return the sizes ``m``, ``n``, ``k``.

    Without two factors of a product, ``n`` is the last parallel loop.
    """
    k = prod(s for s, r in zip(sizes, loops.reduces, strict=True) if r)
    parallel = [d for d, r in enumerate(loops.reduces) if not r and sizes[d] != 1]
    if any(loops.reduces) and len(loops.maps) > 2:
        reads = loops.maps[:2]
        left, right = ([d for d in parallel if d in reads[i] and d not in reads[1 - i]] for i in (0, 1))
        if left and right:
            return {"m": prod(sizes[d] for d in left), "n": prod(sizes[d] for d in right), "k": k}
    return {"m": prod(sizes[d] for d in parallel[:-1]), "n": sizes[parallel[-1]] if parallel else 1, "k": k}


def _attention(op: ir.Operation, counts: _Counts) -> None:
    backward = op.name == "kern.attention_backward"
    found = read_attention(op)
    size = {d: s if isinstance(s, int) else UNKNOWN_SIZE for d, s in found.sizes.items()}
    scores = float(prod(size.get(d, 1) for d in "bhmn")) * (0.5 if found.causal else 1.0)
    width = size.get("d", 1) + size.get("e", 1)
    counts.said += [str(found.causal), str(found.group)]
    counts.ops, counts.reductions = counts.ops + 1, counts.reductions + 1
    counts.work += scores * 2 * width * (2.5 if backward else 1.0)
    counts.slow += scores
    if scores * width >= counts.most:
        counts.most = scores * width
        counts.sizes = {"m": size.get("m", 1), "n": size.get("n", 1), "k": width // 2}


def _width(type_: ir.RankedTensorType) -> int:
    text = str(type_.element_type).lstrip("bcfuis")
    return max(1, int(text) // 8) if text.isdecimal() else 8


def _bytes(type_: ir.Type) -> int:
    if not isinstance(type_, ir.RankedTensorType):
        return 8
    sizes = (UNKNOWN_SIZE if type_.is_dynamic_dim(d) else s for d, s in enumerate(type_.shape))
    return prod(sizes) * _width(type_)


def _kind(type_: ir.Type) -> str:
    """Return the text of a type without its sizes."""
    is_tensor = isinstance(type_, ir.RankedTensorType)
    return f"{type_.rank}x{type_.element_type}" if is_tensor else str(type_)
