"""Choice between all-gather and all-to-all for attention whose sequence is split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.cost.collective import sent_bytes
from shardc.dialects.aten.call import OpCall
from shardc.passes.manager.attention import CALLS, copies
from shardc.passes.manager.program import Program

ALLGATHER, ULYSSES = "allgather", "ulysses"


@dataclass(frozen=True)
class Attention:
    """A step's calls of attention, forward and backward, and the bytes of masks that differ by row."""

    calls: Sequence[OpCall] = ()
    mask_bytes: int = 0

    def cheapest(self, ways: int, head_ways: int) -> str:
        """Return the method that sends fewer bytes over an axis of ``ways``. Other axes split heads
        ``head_ways`` ways.

        All-gather sends keys and values, and in backward scatters their gradients. All-to-all moves queries,
        keys, values and the output, or their gradients, from a part of the sequence to a part of the heads
        (Jacobs et al., DeepSpeed-Ulysses, 2023).
        """
        if not self.calls or any(heads_problem(call, ways, head_ways) for call in self.calls):
            return ALLGATHER
        gathered = sum(sent_bytes("all_gather", ways, _keys(c) / ways) for c in self.calls)
        moved = sum(sent_bytes("all_to_all", ways, _moved(c, ways, head_ways) / ways) for c in self.calls)
        moved += sent_bytes("all_gather", ways, self.mask_bytes / ways)
        return ULYSSES if moved < gathered else ALLGATHER


def attention_of(program: Program) -> Attention:
    """Collect the calls of attention of a step."""
    nodes = [node for node in program.nodes if node.spec.target in CALLS]
    masks = {n.operands[3]: n.spec["mask"] for n in nodes if n.spec.target == CALLS[0] and n.spec["mask"]}
    return Attention([n.spec for n in nodes], sum(m.size_bytes for m in masks.values() if m.shape[2] > 1))


def heads_problem(call: OpCall, ways: int, head_ways: int) -> bool:
    """Return whether ``ways`` and ``head_ways`` together do not divide the heads of a call."""
    return call["q"].shape[1] % (ways * _cut_already(call, head_ways)) != 0


def _cut_already(call: OpCall, head_ways: int) -> int:
    """Return ``head_ways``, or 1 if they do not divide the heads, which then stay whole."""
    return head_ways if call["q"].shape[1] % head_ways == 0 else 1


def _keys(call: OpCall) -> int:
    return call["k"].size_bytes + call["v"].size_bytes


def _moved(call: OpCall, ways: int, head_ways: int) -> int:
    heads, kv_heads = call["q"].shape[1], call["k"].shape[1]
    each = copies(heads, kv_heads, ways * _cut_already(call, head_ways))
    out = call["grad_out"] if call.target == CALLS[1] else call.result
    return call["q"].size_bytes + out.size_bytes + each * _keys(call)
