"""Measured local products for searches on this machine: tiles and shardings are chosen together.

The time of a product depends on its local shape: few rows, or sizes that are no multiple of a tile, reach a
part of the peak. So before a search for this machine, the products that shardings of a step leave on a device
are measured, unless the tuning database has them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, replace

from shardc.cache import disk
from shardc.compiler import local_cluster
from shardc.compiler.profiling.conditions import conditions
from shardc.compiler.profiling.products import measured_products
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.ops import Product
from shardc.cost.work import MATMULS, matmul_sizes
from shardc.passes.manager.program import Program


def with_local_products(cluster: Cluster, program: Program, samples: int, parts: Sequence[int]) -> Cluster:
    """Return a cluster of this machine's processes with the seconds of a step's local products.

    ``program``: the step on one device, with ``samples``. ``parts``: numbers of micro-batches that are
    searched.
    """
    (device,) = cluster.devices
    shapes = list(dict.fromkeys(local_products(products_of(program), cluster.size, samples, parts)))
    alone = local_cluster.figures().f32_flop_s / device.peak_flop_s("f32")
    rows = tuple((*sizes, alone * seconds) for *sizes, seconds in _measured(shapes))
    return replace(cluster, devices=(replace(device, products=rows),))


def _measured(shapes: Sequence[Product]) -> Sequence[Sequence[float]]:
    """Return rows of sizes and seconds, the same in all processes of the machine: one of them measures."""
    digest = hashlib.sha256(repr((conditions(1), shapes)).encode()).hexdigest()
    name = f"cluster-{digest[:32]}.json"
    if (found := disk.read(name)) is None:
        with disk.alone(name):
            if (found := disk.read(name)) is None:
                rows = [(*astuple(p), seconds) for p, seconds in measured_products(shapes).items()]
                disk.keep(name, json.dumps(rows).encode())
                return rows
    return json.loads(found[1])


def products_of(program: Program) -> Iterator[Product]:
    """Yield a program's products."""
    for node in program.nodes:
        if node.spec.target in MATMULS:
            left, right = node.spec.tensors[-2:]
            yield Product(*matmul_sizes(left.shape, right.shape), right.dtype.itemsize)


def local_products(
    products: Iterable[Product], devices: int, samples: int, parts: Sequence[int]
) -> Iterator[Product]:
    """Yield the products that remain on a device for all ways to split them over ``devices``.

    A dim that holds all samples may also be split into ``parts`` micro-batches.
    """
    for p in products:
        sizes = p.batch, p.m, p.n, p.k
        for cuts in _cuts(sizes, devices):
            local = tuple(size // cut for size, cut in zip(sizes, cuts, strict=True))
            yield _product(local, p.element_bytes)
            whole = [place for place, size in enumerate(sizes) if size % samples == 0]
            for place, count in itertools.product(whole, parts):
                if count > 1 and local[place] % count == 0:
                    smaller = (*local[:place], local[place] // count, *local[place + 1 :])
                    yield _product(smaller, p.element_bytes)


def _product(sizes: tuple[int, ...], element_bytes: int) -> Product:
    batch, m, n, k = sizes
    return Product(batch, m, n, k, element_bytes)


def _cuts(sizes: Sequence[int], devices: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to split dims so that all parts together are a divisor of ``devices``."""
    if not sizes:
        yield ()
        return
    for cut in (n for n in range(1, devices + 1) if devices % n == 0 and sizes[0] % n == 0):
        for others in _cuts(sizes[1:], devices // cut):
            yield (cut, *others)
