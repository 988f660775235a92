"""Selection of the roots that run with a kernel's contraction; its functions in the kernel's module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from shardc.backends.body.contraction import is_contraction
from shardc.backends.body.graph import Argument
from shardc.backends.body.nest import Nest, merge_axes, offsets_of
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.triton.emit.module import Module
from shardc.backends.triton.matmul.contraction import Matmul
from shardc.backends.triton.matmul.descriptor import HAS_DESCRIPTORS, read_by_descriptors
from shardc.backends.triton.matmul.forms import Forms
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, Tiling, estimate_s, shared_bytes, spill_bytes
from shardc.cost.tilings import choose, refusal, tilings
from shardc.diagnostics.triton import TilingNotLegal, TooMuchSharedMemory, TritonKernelNotSupported
from shardc.dialects.kern.size import hint


def matmul_nest(roots: Roots, reads: Mapping[Root, Reads]) -> Nest | None:
    """Return the nest of the contraction, the roots over its result and those that it reads; or None."""
    product = next((r for r in roots.items if is_contraction(r)), None)
    if product is None:
        return None
    after = all_after(product, roots, reads)
    index = product.result_index(0)

    def reads_here(root: Root) -> bool:
        return all(
            isinstance(v, Argument) or roots.of[v] not in after or (roots.of[v] is product and i == index)
            for v, i in reads[root].ends
        )

    beside = [
        r for r in roots.items if not r.is_reduction and r.parallel == product.parallel and reads_here(r)
    ]
    awaited = {roots.of.get(v) for v, _ in reads[product].ends}
    members = [product, *(r for r in beside if r in after or r not in awaited)]
    sizes = {axis: size for root in members for axis, size in root.loops.items()}
    offsets = offsets_of(members, dict(reads))
    slowest = {axis: max((hint(o.factor(axis)) for o in offsets), default=0) for axis in sizes}
    nest = Nest([], members, sizes=sizes, order=sorted(sizes, key=lambda axis: -slowest[axis]))
    merge_axes(nest, offsets, dict(reads))
    return nest


def all_after(product: Root, roots: Roots, reads: Mapping[Root, Reads]) -> set[Root]:
    """Return the contraction and every root that reads it, directly or not."""
    found = {product}
    for root in roots.items:
        if any(v in roots.of and roots.of[v] in found for v, _ in reads[root].ends):
            found.add(root)
    return found


def add_matmul(module: Module, matmul: Matmul, product: Product, config: Mapping[str, int]) -> None:
    """Add the functions of ``matmul``, tiled as ``config`` says or, without it, as the cost model chooses.

    Raises TritonKernelNotSupported; for a tiling of ``config``, TilingNotLegal or TooMuchSharedMemory.
    """
    tiling = _tiling(module.name, product, matmul.target, config)
    descriptors = matmul.target.arch in HAS_DESCRIPTORS and not config.get("pointers")
    forms = Forms(matmul, tiling, descriptors, module.memory)
    module.sizes += matmul.constants()
    parts = forms.parts()
    parts[0].seconds = estimate_s(tiling, product, matmul.target)  # includes the parts after it
    parts[0].spill_bytes = spill_bytes(tiling, product, matmul.target)
    module.helpers += forms.helpers()
    if pointers := {d.pointer for d in forms.functions.descriptors}:
        read_by_descriptors(module, [p.argument for p in module.memory.inputs if p.name in pointers])
    module.parts += parts


def _tiling(name: str, product: Product, target: Gpu, config: Mapping[str, int]) -> Tiling:
    if not tilings(product, target):
        raise TritonKernelNotSupported(what="a matmul for which no tile fits")
    asked = {f.name: config[f.name] for f in fields(Tiling) if f.name in config}
    chosen = choose(product, target)
    if not asked:
        return chosen
    if {"block_m", "block_n", "block_k"} <= asked.keys():  # a whole tile also decides the form
        chosen = replace(chosen, split=1, persistent=0)
    tiling = replace(chosen, **asked)
    for part in ("block_m", "block_n", "block_k", "warps"):
        if (n := getattr(tiling, part)) & (n - 1) or (part != "warps" and n < 16):
            problem = f"{part} = {n} must be a power of 2, blocks at least 16"
            raise TilingNotLegal(name=name, target=target.name, problem=problem)
    if refusal(tiling, product, target) is not None:
        needed = shared_bytes(tiling, product, target)
        if needed > target.shared_bytes:
            raise TooMuchSharedMemory(
                name=name, target=target.name, needed_bytes=needed, shared_bytes=target.shared_bytes
            )
        raise TilingNotLegal(name=name, target=target.name, problem=f"{tiling} does not fit into registers")
    return tiling
