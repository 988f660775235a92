"""Division, among a pipeline's ranks, of state and of the step's ops around the micro-batches.

A parameter is held by the ranks whose stages read it, and optimizer state is held with its parameter. An op
whose operands are on one rank runs there. An op on values of several ranks, such as the sum of the gradients'
norms, runs on every rank that needs its result; missing operands are sent to these ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.passes.manager.copy_ops import reads
from shardc.passes.pipeline.stages.step_program import StepProgram
from shardc.runtime.check import STATE_ROLES

Home = frozenset[int] | None
"""The ranks that have a value; None if any rank can compute it."""


@dataclass
class Demand:
    """Each rank's arguments, ops and results, and the transfers between ranks.

    ``arguments[r]`` and ``ops[r]`` (by first result) are those of rank ``r``; ``results[r]`` are numbers of
    the step's results. ``transfers`` maps a value to pairs (sender, receiver). ``parts`` maps the number of a
    sum to the pairs that exchange their parts of it. ``rows`` does the same for values stacked over
    micro-batches; ``stacks`` has the ranks that need all rows.
    """

    arguments: list[set[ir.Value]]
    ops: list[set[ir.Value]]
    results: list[list[int]]
    transfers: dict[ir.Value, dict[tuple[int, int], None]] = field(default_factory=dict)
    parts: dict[int, dict[tuple[int, int], None]] = field(default_factory=dict)
    rows: dict[ir.Value, dict[tuple[int, int], None]] = field(default_factory=dict)
    stacks: dict[ir.Value, set[int]] = field(default_factory=dict)


class DemandFinder:
    """Search for the demands of ranks.

    ``wanted[r]`` are the values that the actions of rank ``r`` read, ``summed`` the ranks with a part of each
    sum, and ``stacked`` the ranks with rows of each stack. ``held``, if given, fixes the ranks that hold each
    parameter and buffer.
    """

    def __init__(
        self,
        program: StepProgram,
        wanted: Sequence[Sequence[ir.Value]],
        summed: Mapping[int, Sequence[int]],
        stacked: Mapping[ir.Value, Sequence[int]],
        held: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._program, self._summed, self._stacked = program, summed, stacked
        self._ranks = ranks = range(len(wanted))
        self._found = Demand([set() for _ in ranks], [set() for _ in ranks], [[] for _ in ranks])
        self._homes: dict[ir.Value, Home] = {}
        self._number = {value: i for i, value in enumerate(program.values.carried)}
        for rank, values in enumerate(wanted):
            for value in values:
                self._need_here(rank, value)
        for value, (role, name) in program.keys.items():
            for rank in (held or {}).get(name, ()) if role in STATE_ROLES else ():
                self._found.arguments[rank].add(value)
        self._find_homes()

    def find(
        self, returned: Sequence[tuple[ir.Value, tuple[str, str]]], fetched: Sequence[Sequence[ir.Value]]
    ) -> Demand:
        """Return the demands of all ranks.

        ``returned`` are the step's results, each with role and name. The actions of rank ``r`` also read
        ``fetched[r]``, which are sent to ``r`` if another rank has them.
        """
        for rank, values in enumerate(fetched):
            for value in values:
                self._need(rank, value)
        held = {key: self._homes[value] for value, key in self._program.keys.items()}
        for number, (value, key) in enumerate(returned):
            home = held.get(key) if key[0] in STATE_ROLES else None
            for rank in self._ranks if home is None else sorted(home):
                self._found.results[rank].append(number)
                self._need(rank, value)
        for value in self._program.keys:
            if not any(value in arguments for arguments in self._found.arguments):
                self._found.arguments[0].add(value)  # the step has this argument, although nothing reads it
        return self._found

    def _need_here(self, rank: int, value: ir.Value) -> None:
        """Let ``rank`` compute a value from before the loop from arguments, even if another rank has them."""
        todo = [value]
        while todo:
            todo += self._run(rank, todo.pop())

    def _run(self, rank: int, value: ir.Value) -> list[ir.Value]:
        """Add an argument or an op to a rank. Return the operands of a new op."""
        if not isinstance(value, ir.OpResult):
            self._found.arguments[rank].add(value)
            return []
        op = value.owner.operation
        if op.results[0] in self._found.ops[rank]:
            return []
        self._found.ops[rank].add(op.results[0])
        return list(reads(op))

    def _find_homes(self) -> None:
        """Find homes: of arguments by their readers so far, of other values by their operands."""
        keys, homes = self._program.keys, self._homes
        takers = {v: [r for r in self._ranks if v in self._found.arguments[r]] for v in keys}
        readers = {v: frozenset(ranks or (0,)) for v, ranks in takers.items()}
        parameters = {name: readers[v] for v, (role, name) in keys.items() if role == "param"}
        for value, (role, name) in keys.items():
            if role == "opt_state":
                homes[value] = parameters.get(name.rpartition("/")[0])
            else:
                homes[value] = readers[value] if role in ("param", "buffer") else None
        for value, number in self._number.items():
            ranks = frozenset(self._summed[number])
            homes[value] = ranks if len(ranks) == 1 else None
        for value, found in self._stacked.items():
            homes[value] = frozenset(found) if len(found) == 1 else None
        for op in self._program.outside:
            if any(result in homes for result in op.results):
                continue  # the op that unpacks the loop's results
            known = [home for v in reads(op) if (home := homes.get(v)) is not None]
            common = frozenset.intersection(*known) if known else frozenset()
            homes.update((result, common or None) for result in op.results)

    def _need(self, rank: int, value: ir.Value) -> None:
        todo = [(rank, value)]
        seen: set[tuple[int, ir.Value]] = set()
        while todo:
            rank, value = todo.pop()
            if (rank, value) in seen:
                continue
            seen.add((rank, value))
            home = self._homes[value]
            if home is not None and rank not in home:
                sender = min(home)
                self._found.transfers.setdefault(value, {})[sender, rank] = None
                todo.append((sender, value))
            elif value in self._stacked:
                self._found.stacks.setdefault(value, set()).add(rank)
                for other in self._stacked[value]:
                    if other != rank:
                        self._found.rows.setdefault(value, {})[other, rank] = None
            elif value in self._number:
                number = self._number[value]
                for other in self._summed[number]:
                    if other != rank:
                        self._found.parts.setdefault(number, {})[other, rank] = None
            else:
                todo += [(rank, v) for v in self._run(rank, value)]
