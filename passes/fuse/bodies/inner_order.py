"""Order of dims of values that only kernels read, such as the powers of a softmax that two kernels compute.

The kernel that makes such a value writes it in the order in which it reads memory. A kernel that reads it in
another order reads it across its rows, which costs less than to write it so.
"""

from __future__ import annotations

from collections.abc import Collection

from shardc.passes.fuse.grouping.legal import flat
from shardc.passes.fuse.reading.graph import Access, Value
from shardc.passes.fuse.reading.unit import Unit


def order_inner(kernels: Collection[Unit], results: dict[Unit, list[Value]]) -> None:
    """Change the order of dims of such values among ``results``, of each kernel in ``kernels``."""
    for unit in kernels:
        for value in results[unit]:
            order = _order(unit, value)
            readers = [reader for reader in kernels if value in reader.accesses]
            accesses = [access for reader in readers for access in reader.accesses[value]]
            if order is not None and all(_is_plain(access, len(order)) for access in accesses):
                _turn(value, order, readers)


def _order(unit: Unit, value: Value) -> list[int] | None:
    """Return the dims of ``value`` in the order of the tensors that ``unit`` reads, if it is another one."""
    node, space = value.node, unit.space
    is_inner = value.ir is None and value.view is None
    if node is None or not is_inner or node.out is not value or node.others or node.reduce:
        return None
    dims = [space.resolve(atoms) for atoms in node.out_dims]
    own = tuple(atom for atoms in dims for atom in atoms)
    read = [a for v, accesses in unit.accesses.items() for a in accesses if v.node not in unit.domains]
    orders = {atoms for a in read if not a.jumps and set(atoms := flat(space, a.dims)) == set(own)}
    if len(orders) != 1 or own in orders:
        return None
    (atoms,) = orders
    order = sorted(range(len(dims)), key=lambda d: atoms.index(dims[d][0]) if dims[d] else -1)
    return order if tuple(atom for d in order for atom in dims[d]) == atoms else None


def _is_plain(access: Access, rank: int) -> bool:
    return not access.jumps and len(access.dims) == rank


def _turn(value: Value, order: list[int], readers: Collection[Unit]) -> None:
    assert value.node is not None
    value.type = value.type.with_shape(tuple(value.type.shape[d] for d in order))
    value.node.out_dims = tuple(value.node.out_dims[d] for d in order)
    for reader in readers:
        became = {a: Access(value, tuple(a.dims[d] for d in order)) for a in reader.accesses[value]}
        reader.accesses[value] = [became[access] for access in reader.accesses[value]]
        for node in reader.nodes:
            node.accesses[:] = [became.get(access, access) for access in node.accesses]
