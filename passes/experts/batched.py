"""Recognition of experts as batched products, in which each expert computes an equal block of rows.

Experts in einsum form (GShard, Lepikhin et al., 2021; Mesh-TensorFlow, Shazeer et al., 2018) fill each
expert's block by products with one-hot tensors. Experts of Llama 4 compute all rows. Neither form needs a
pass: sharding rules propagate a split of the parameters' experts to the products.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from shardc.passes.experts.chosen_matrix import is_cast, producer
from shardc.passes.manager.program import Node, Program

_PRODUCTS = ("aten.bmm", "aten.mm", "aten.matmul")
_COPIES = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.clone")
_VIEWS = (*_COPIES, "aten.unsqueeze", "aten.squeeze.dim")


def batched_parameters(program: Program) -> list[int]:
    """Return the argument numbers of parameters [experts, ...] that products read.

    Experts are the batch dim of at least one product. Other parameters with the same number of experts
    are included if their experts are a free dim of a product, which multiplies all rows with all matrices.
    """
    found = {at for node in program.nodes for at in _read_by(program, node)}
    counts = {_experts(program, place) for place, is_batch in found if is_batch}
    return sorted({place for place, _ in found if _experts(program, place) in counts})


def _experts(program: Program, place: int) -> int:
    return program.types[program.arguments[place]].shape[0]


def _read_by(program: Program, node: Node) -> Iterator[tuple[int, bool]]:
    """Yield the parameters [experts, ., .] that a product reads, and whether experts are its batch dim."""
    if node.spec.target not in _PRODUCTS:
        return
    for value in node.operands:
        at = _expert_dim(program, value)
        if at is not None:
            place, dim = at
            shape = program.types[value].shape
            yield place, len(shape) == 3 and dim == 0 and shape[0] == _experts(program, place)


def _expert_dim(program: Program, value: int) -> tuple[int, int] | None:
    """Return the parameter [experts, ., .] of which ``value`` is a view, and a dim of ``value``.

    The dim is the one whose outermost factor is the experts. None for any other value.
    """
    views: list[Node] = []
    while (node := producer(program, value)) is not None:
        if not is_cast(node) and node.spec.target not in (*_VIEWS, "aten.permute", "aten.transpose.int"):
            return None
        views.append(node)
        value = node.operands[0]
    shape = program.types[value].shape
    if len(shape) != 3:
        return None
    place = program.arguments.index(value)
    if program.argument_key(place)[0] != "param":
        return None
    dim: int | None = 0
    for node in reversed(views):
        dim = _behind(program, node, dim, shape[0])
        if dim is None:
            return None
    return place, dim


def _behind(program: Program, node: Node, dim: int, experts: int) -> int | None:
    """Return the dim of a view's result that corresponds to ``dim`` of its operand.

    Both have the experts as outermost factor. None if the view splits them.
    """
    before, after = (program.types[v].shape for v in (node.operands[0], node.results[0]))
    if node.spec.target == "aten.permute":
        return [d % len(before) for d in node.spec.args[1]].index(dim)
    if node.spec.target == "aten.transpose.int":
        first, second = (d % len(before) for d in node.spec.args[1:])
        return {first: second, second: first}.get(dim, dim)
    outside = prod(before[:dim])
    for place, size in enumerate(after):
        if prod(after[:place]) == outside and size % experts == 0:
            return place
    return None
