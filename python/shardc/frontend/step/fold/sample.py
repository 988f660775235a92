"""Traced call of a layer as a sample for its kind, and conditions that forbid copying it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from shardc.frontend.nodes import viewed
from shardc.frontend.step.fold.given import Given, is_fixed
from shardc.frontend.step.fold.tape import Known, Tape, Unfoldable, outer
from shardc.frontend.step.frozen import PLAIN
from shardc.frontend.step.traced_tensor import inner_of
from shardc.runtime.torch_private import pytree


@dataclass(frozen=True)
class Place:
    """Place of a tensor among those that a call received or made."""

    is_given: bool
    number: int


@dataclass(frozen=True)
class Returned:
    """Result of a call: numbers, and the places of its tensors."""

    form: pytree.TreeSpec
    leaves: tuple[object, ...]

    def of(self, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> object:
        """Return the same structure with these tensors."""
        found = [
            (given if leaf.is_given else made)[leaf.number] if isinstance(leaf, Place) else leaf
            for leaf in self.leaves
        ]
        return pytree.tree_unflatten(found, self.form)


@dataclass(frozen=True, eq=False)
class Sample:
    """A traced call.

    ``edges`` replaced the differentiable tensors among its inputs. ``outputs`` are the tensors that it made
    and returned, each once. ``drawn`` is the number of its first draw, ``draws`` the number of its draws.
    """

    given: Given
    edges: list[torch.Tensor]
    edge_nodes: list[Node]
    nodes: list[Node]
    outputs: list[torch.Tensor]
    output_nodes: list[Node]
    returned: Returned
    drawn: int
    draws: int

    def known(self, other: Given, edge_nodes: Sequence[Node]) -> Known:
        """Map this call's inputs and edges to the nodes of another call."""
        own, others = [*self.given.nodes, *self.edge_nodes], [*other.nodes, *edge_nodes]
        return dict(zip(own, others, strict=True))

    def check_outputs(self, tape: Tape) -> None:
        """Raise Unfoldable if a copy would not be an independent call."""
        own, handed = {*self.nodes}, {*self.given.nodes, *self.edge_nodes}
        for tensor, node in zip(self.outputs, self.output_nodes, strict=True):
            inner = inner_of(tensor)
            if node not in own or viewed(node) in handed:
                raise Unfoldable("it returns a view of what it was given")
            if inner.storage_offset() or inner.is_conj() or inner.is_neg():
                raise Unfoldable("it returns a view that a copy would lay out anew")
        # A differentiable tensor must be read through its edge only, or gradients would bypass it.
        pairs = zip(self.given.tensors, self.given.nodes, strict=True)
        others = [node for tensor, node in pairs if not tensor.requires_grad]
        if (node := outer(self.nodes, [*others, *self.edge_nodes, *tape.seeds])) is not None:
            raise Unfoldable(f"it reads {node}, which is none of its arguments")

    def check_kept(self, tape: Tape) -> None:
        """Raise Unfoldable if later code used the call in a way that copies do not support."""
        own = {*self.nodes}
        if not all(own.issuperset(node.users) for node in own.difference(self.output_nodes)):
            raise Unfoldable("what it computed and did not return is read elsewhere")
        check_unwritten(self.outputs, self.output_nodes, tape)


def check_unwritten(tensors: Sequence[torch.Tensor], nodes: Sequence[Node], tape: Tape) -> None:
    """Raise Unfoldable if a tensor no longer has its original node."""
    if any(tape.node(tensor) is not node for tensor, node in zip(tensors, nodes, strict=True)):
        raise Unfoldable("a tensor that it was given or returned is written to")


def handed_on(result: object, given: Given, edges: Sequence[torch.Tensor]) -> object:
    """Replace edges in a result by the tensors that they stand for."""
    if not is_fixed(result):
        return result  # others may hold it, and treat its edges like any tensor
    leaves, form = pytree.tree_flatten(result)
    own = {id(edge): tensor for edge, tensor in zip(edges, given.differentiable, strict=True)}
    return pytree.tree_unflatten([own.get(id(leaf), leaf) for leaf in leaves], form)


def placed(result: object, given: Given) -> tuple[Returned, list[torch.Tensor]]:
    """Return a call's result with places for tensors, and its new tensors, each once. Raises Unfoldable."""
    leaves, form = pytree.tree_flatten(result)
    handed = {id(tensor): number for number, tensor in enumerate(given.tensors)}
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    made = {id(tensor): tensor for tensor in tensors if id(tensor) not in handed}
    numbers = {key: number for number, key in enumerate(made)}
    places: list[object] = []
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, *PLAIN)):
            raise Unfoldable(f"it returns a {type(leaf).__name__}")
        is_given = id(leaf) in handed
        is_tensor = isinstance(leaf, torch.Tensor)
        places.append(Place(is_given, (handed if is_given else numbers)[id(leaf)]) if is_tensor else leaf)
    return Returned(form, tuple(places)), list(made.values())
