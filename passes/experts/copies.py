"""Selection of experts that are copied to all devices, and computation with the copies."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch_mlir import ir

from shardc.diagnostics.passes.experts import AllExpertsCopied, CopiesNothing, NoSuchCopy
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.options.experts import CopiedExperts
from shardc.passes.experts.chosen_matrix import exchanges, producer
from shardc.passes.experts.chunks import Call
from shardc.passes.experts.expert_weights import weight_argument
from shardc.passes.experts.layout import Layout
from shardc.passes.manager.program import Node, Program

COPIED_IDS, PICK, PLACE = "shardc.copied_ids", "shardc.pick_experts", "shardc.place_experts"
_OTHER = -1


def find_copies(
    program: Program, routings: Mapping[int, Sequence[Node]], given: CopiedExperts
) -> dict[int, tuple[int, ...]]:
    """Return the copied experts of each routing that has any.

    ``routings``: products by routing. ``given``: experts by name patterns of parameters or modules. Raises
    AllExpertsCopied, CopiesNothing, NoSuchCopy.
    """
    names = {routing: _parameters(program, nodes) for routing, nodes in routings.items()} if given else {}
    for pattern, _ in given:
        known = sorted({name for own in names.values() for name in own})
        if not _matching(known, pattern):
            nearest = difflib.get_close_matches(pattern, known, n=3, cutoff=0.2) or known[:3]
            raise CopiesNothing(pattern=pattern, nearest=nearest)
    return {routing: copies for routing, own in names.items() if (copies := _copies(own, given))}


def _parameters(program: Program, nodes: Iterable[Node]) -> dict[str, int]:
    """Return the number of experts of each parameter that a routing's products read, by name."""
    places = {place for node in nodes if (place := weight_argument(program, node)) is not None}
    return {
        program.argument_key(place)[1]: program.types[program.arguments[place]].shape[0]
        for place in sorted(places)
    }


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the parameters whose name, or whose module's name, matches a pattern."""
    return [n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n.rpartition(".")[0], pattern)]


def _copies(names: Mapping[str, int], given: CopiedExperts) -> tuple[int, ...]:
    found: set[int] = set()
    for pattern, experts in given:
        for name in _matching(names, pattern):
            if beyond := [expert for expert in experts if expert >= names[name]]:
                raise NoSuchCopy(expert=beyond[0], name=name, experts=names[name])
            found.update(experts)
            if len(found) == names[name]:
                raise AllExpertsCopied(name=name, experts=names[name])
    return tuple(sorted(found))


class Copies:
    """Copied experts of one routing, and the rows that stay on their devices because of them."""

    def __init__(
        self, program: Program, codec: ShardingCodec, layout: Layout, routing: int, call: Call
    ) -> None:
        """Write the split of rows. ``call``: builder of calls before all others of the routing."""
        self._program, self._codec, self._layout = program, codec, layout
        self._picked: dict[int, ir.Value] = {}
        type_ = program.types[routing]
        (rows,) = type_.shape
        chosen, flags = program.values[routing], TensorType((rows,), torch.bool)
        self.ids = call(COPIED_IDS, (chosen, layout.copies), [type_]).results[0]
        """Position of each row's expert among the copies; -1 for rows that are sent."""
        stays = call("aten.ge.Scalar", (self.ids, 0), [flags]).results[0]
        self.sent = call("aten.masked_fill.Scalar", (chosen, stays, _OTHER), [type_]).results[0]
        """Expert of each row; -1 for rows that stay."""
        self._stays = call("aten.unsqueeze", (stays, 1), [flags.with_shape((rows, 1))]).results[0]

    def matrices(self, call: Call, value: int) -> ir.Value:
        """Return copies of matrices [E, K, N]. Forward and backward share the copies of a parameter."""
        source, is_turned = value, False
        while (made := producer(self._program, source)) is not None and exchanges(self._program, made):
            source, is_turned = made.operands[0], not is_turned
        if source not in self._picked:
            self._picked[source] = self.picked(
                call, self._program.values[source], self._program.types[source]
            )
        if not is_turned:
            return self._picked[source]
        type_ = self._of_copies(self._program.types[value])
        return call("aten.transpose.int", (self._picked[source], 1, 2), [type_]).results[0]

    def picked(self, call: Call, matrices: ir.Value, type_: TensorType) -> ir.Value:
        """Return the copied experts of ``matrices``, on every device.

        Propagation may still shard the dims of an expert's matrix.
        """
        args = (matrices, self._layout.copies, 0)
        made = call(PICK, args, [self._of_copies(type_)]).results[0]
        whole = Sharding(((), (), ()), (), (False, True, True))
        return constraint(made, whole, self._codec, loc=call.keywords["loc"], ip=call.keywords["ip"])

    def placed(self, call: Call, sums: ir.Value, type_: TensorType) -> ir.Operation:
        """Return sums of the copied experts as sums of all experts, with zeros for the others."""
        return call(PLACE, (sums, self._layout.copies, 0, self._layout.experts), [type_])

    def joined(self, call: Call, stayed: ir.Value, sent: ir.Value, type_: TensorType) -> ir.Value:
        """Return one tensor with the results of the rows that stay and of those that were sent."""
        return call("aten.where.self", (self._stays, stayed, sent), [type_]).results[0]

    def _of_copies(self, type_: TensorType) -> TensorType:
        return type_.with_shape((len(self._layout.copies), *type_.shape[1:]))
