"""What the ops of a pipeline's forward hold, from a program that is not cut into stages yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.dialects.aten.schema import overload
from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.repeated import Repeated
from shardc.passes.pipeline.stages.step_program import StepProgram, body_ops, size_bytes, tensor
from shardc.planning.bounds.kept import READERS
from shardc.runtime.first_run import may_share

STATE = ("param", "opt_state")


@dataclass(frozen=True)
class Holding:
    """Bytes on a device because of one op of the forward.

    ``kept``: (bytes, reach) of its results for backward in a micro-batch; the last op of the forward that
    reads the result is ``reach`` ops behind. ``parameter_bytes`` and ``state_bytes``: parameters that no
    earlier op reads, and their optimizer state.
    """

    kept: tuple[tuple[int, int], ...] = ()
    parameter_bytes: int = 0
    state_bytes: int = 0


def holdings(program: StepProgram, forward: Forward) -> list[Holding]:
    """Return what each op of a forward holds."""
    kept, state = _kept(program, forward), _state(program)
    found, seen = list[Holding](), set[str]()
    for number in range(len(forward.ops)):
        new = forward.parameters_of(number) - seen
        seen |= new
        sizes = [sum(state.get((role, name), 0) for name in new) for role in STATE]
        found.append(Holding(tuple(kept.get(number, ())), *sizes))
    return found


def of_whole(shallow: Sequence[Holding], deeper: Sequence[Holding], whole: Repeated) -> list[Holding]:
    """Return the holdings of the whole model's forward; ``deeper`` has a layer more than ``shallow``."""
    start, period = whole.start, whole.period
    more = (len(whole.forward.ops) - len(shallow)) // period
    return [*shallow[:start], *[*deeper[start : start + period]] * more, *shallow[start:]]


def of_stages(held: Sequence[Holding], cuts: Sequence[int]) -> list[Holding]:
    """Return the sum over the ops of each stage. Results that a later stage reads do not count: it may keep
    them instead.
    """
    found = list[Holding]()
    for start, end in pairwise([0, *cuts, len(held)]):
        part = list(enumerate(held[start:end], start))
        kept = sum(size for n, holding in part for size, reach in holding.kept if n + reach < end)
        parameter_bytes = sum(holding.parameter_bytes for _, holding in part)
        state_bytes = sum(holding.state_bytes for _, holding in part)
        found.append(Holding(((kept, 0),), parameter_bytes, state_bytes))
    return found


def _kept(program: StepProgram, forward: Forward) -> Mapping[int, list[tuple[int, int]]]:
    """Return number of an op -> (bytes, reach) of its results that backward reads."""
    numbers = {op.results[0]: number for number, op in enumerate(forward.ops)}
    owner: dict[ir.Value, ir.Value | None] = {}
    maker: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}
    read: dict[ir.Value, dict[ir.Value, int]] = {}
    for op in body_ops(program.body):
        number, operands = numbers.get(op.results[0]), list(reads(op))
        if number is not None:
            last.update((whole, number) for v in operands if (whole := owner.get(v)) is not None)
        for value in op.results:
            owner[value] = whole = _owner(op, value, owner)
            if whole is not None and whole == value and number is not None:
                maker[value] = number
        if phase_of(op) in READERS:
            for value in operands:
                if (held := owner.get(value)) is not None and held in maker:
                    read.setdefault(held, {})[value] = size_bytes(value)
    found: dict[int, list[tuple[int, int]]] = {}
    for value, seen in read.items():
        at, size = maker[value], min(size_bytes(value), sum(seen.values()))
        found.setdefault(at, []).append((size, max(0, last.get(value, at) - at)))
    return found


def _owner(op: ir.Operation, value: ir.Value, owner: Mapping[ir.Value, ir.Value | None]) -> ir.Value | None:
    """Return the value whose memory a result uses; None where that is not known."""
    if not op.name.startswith("torch.") or tensor(value) is None:
        return None
    target = target_name(op)
    if target in VIEWS:
        return owner.get(op.operands[0])
    return None if may_share(overload(target)) else value


def _state(program: StepProgram) -> Mapping[tuple[str, str], int]:
    """Return (role, parameter) -> local bytes of a parameter, or of its optimizer state."""
    found: dict[tuple[str, str], int] = {}
    for value, (role, name) in program.keys.items():
        if role in STATE:
            key = role, name.rpartition("/")[0] if role == "opt_state" else name
            found[key] = found.get(key, 0) + size_bytes(value)
    return found
