"""Programs of ranks: work before the micro-batches, actions and transfers, and work after them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from torch_mlir import ir

from shardc.dialects.aten.call import is_constant
from shardc.dialects.pipe.action import OPTIMIZER, Action, Collective, CollectiveKind, Step, Transfer
from shardc.dialects.pipe.action_op import run_action
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.rank_function import function_name
from shardc.dialects.pipe.receive import receive
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.send import send
from shardc.dialects.pipe.weight_versions import forward_weights, group_ends
from shardc.passes.manager.copy_ops import Copier, reads
from shardc.passes.pipeline.ranks.collective_bodies import CollectiveBody
from shardc.passes.pipeline.ranks.collectives import place_collectives
from shardc.passes.pipeline.ranks.rank_demand import Demand, DemandFinder
from shardc.passes.pipeline.ranks.rows import ranks_of, stacked
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.stages.activations import evictable
from shardc.passes.pipeline.stages.places import Assignment, Row
from shardc.passes.pipeline.stages.stage_bodies import StageBody, Stages
from shardc.passes.pipeline.stages.step_program import StepProgram, keys_of
from shardc.passes.pipeline.stages.weight_updates import StageUpdate, varying

ROWS = "rows"
"""Tag of messages with rows of micro-batches."""


def write_rank_programs(
    program: StepProgram,
    stages: Stages,
    assignment: Assignment,
    schedule: Schedule,
    updates: Mapping[int, StageUpdate],
    collectives: Sequence[CollectiveBody],
    ip: ir.InsertionPoint,
    held: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Insert a function for each rank of ``schedule`` at ``ip`` in the module.

    ``updates`` are the optimizers of stages that run between the actions; empty if weights change once.
    ``collectives`` also run between actions. ``held`` has the ranks that hold each parameter and buffer, if
    another program has decided that; values that a rank reads and does not hold are sent to it.
    """
    bodies = [_bodies_on(rank, stages, schedule) for rank in range(schedule.ranks)]
    numbers = [list(dict.fromkeys(n for body in own for n in body.numbers)) for own in bodies]
    gathers = {body.index: body for body in collectives if body.kind == "UNSHARD"}
    wanted = [
        [program.captures[v] for body in [*own, *_gathers_of(own, gathers)] for v in _captures(body)]
        + [program.values.inits[n] for n in mine]
        for own, mine in zip(bodies, numbers, strict=True)
    ]
    fetched: list[list[ir.Value]] = [[] for _ in bodies]
    for own, values, sent in zip(bodies, wanted, fetched, strict=True):
        for index in dict.fromkeys(body.index for body in own if body.index in updates):
            values += [*updates[index].own, *updates[index].given]
            sent += updates[index].state
    of_groups = {number for update in updates.values() for number in update.sums}
    numbers = [[n for n in mine if n not in of_groups] for mine in numbers]
    if held is not None:
        wanted, fetched = fetched, wanted
    summed = {n: [r for r, mine in enumerate(numbers) if n in mine] for n in range(len(program.carried))}
    made = {row.result: list(ranks_of(row, schedule)) for row in assignment.rows}
    returned = results_of(program)
    # State that actions update is on the ranks that hold its argument.
    old = {new: old for update in updates.values() for old, new in zip(update.state, update.new, strict=True)}
    results = [(old.get(value, value), key) for value, key, _ in returned]
    demand = DemandFinder(program, wanted, summed, made, held).find(results, fetched)
    kinds: dict[int, Collection[CollectiveKind]] = {
        stage: [body.kind for body in collectives if body.index == index]
        for route in schedule.routes
        for index, stage in enumerate(route)
    }
    steps = place_collectives(schedule, place_transfers(schedule), kinds)
    evicted = evictable(assignment, stages) if schedule.evictions else {}
    ranks = [
        _RankWriter(program, stages, schedule, demand, updates, collectives, evicted, steps[rank], rank, ip)
        for rank in range(schedule.ranks)
    ]
    ends = {fold.number: fold.op for fold in assignment.folds}
    for value in program.block.arguments:
        _transfer(ranks, demand, value, ":".join(program.keys[value]))
    for number, op in _in_order(program, bool(updates), returned):
        if op == program.loop:
            for rank, mine in zip(ranks, numbers, strict=True):
                rank.run_actions(mine)
            _exchange_sums(ranks, demand, program, ends)
            for row in assignment.rows:
                _exchange_rows(ranks, demand, row)
        elif not is_constant(op):
            for rank in ranks:
                first = op.results[0] if len(op.results) else None
                if first in demand.ops[rank.number] and first not in rank.reduced:
                    rank.copier.copy(op)
            for place, result in enumerate(op.results):
                _transfer(ranks, demand, result, f"value {number}.{place}")
    for rank in ranks:
        rank.finish(returned)


def _captures(body: StageBody | CollectiveBody) -> list[ir.Value]:
    return body.captures if isinstance(body, StageBody) else body.reads


def _gathers_of(bodies: Sequence[StageBody], gathers: Mapping[int, CollectiveBody]) -> list[CollectiveBody]:
    """Return the gathers of the stages of ``bodies``."""
    return [gathers[index] for index in dict.fromkeys(body.index for body in bodies) if index in gathers]


def _bodies_on(rank: int, stages: Stages, schedule: Schedule) -> list[StageBody]:
    """Return the bodies that a rank runs, each once."""
    order = schedule.orders[rank]
    used = {(schedule.route(a.micro_batch).index(a.stage), str(a.kind)) for a in order}
    return [body for (index, kind, _), body in stages.bodies.items() if (index, kind) in used]


Result = tuple[ir.Value, tuple[str, str], ir.Attribute]


def _in_order(
    program: StepProgram, early: bool, returned: Sequence[Result]
) -> list[tuple[int, ir.Operation]]:
    """Return the step's ops with their numbers.

    ``early``: ops that no update affects come before the loop, so that optimizers between actions can read
    their results.
    """
    ops = list(enumerate(o.operation for o in program.block.operations))
    if not early:
        return ops
    at = next(number for number, op in ops if op == program.loop)
    changing = {*program.loop.results, *varying(program, [(value, key) for value, key, _ in returned])}
    late = [pair for pair in ops[at + 1 :] if any(v in changing for v in reads(pair[1]))]
    moved = [pair for pair in ops[at + 1 :] if pair not in late]
    return [*ops[:at], *moved, ops[at], *late]


def results_of(program: StepProgram) -> list[Result]:
    """Return the step's results with role and name, and all their attributes."""
    values = list(list(program.block.operations)[-1].operation.operands)
    keys = keys_of(program.function, "res_attrs")
    return list(zip(values, keys, program.function.attributes["res_attrs"], strict=True))


def _transfer(ranks: Sequence[_RankWriter], demand: Demand, value: ir.Value, tag: str) -> None:
    """Send a value, as soon as it is computed, to the ranks that need it, in the same order on all ranks."""
    for sender, receiver in demand.transfers.get(value, ()):
        ranks[sender].send([ranks[sender].copier.values[value]], receiver, tag)
        (ranks[receiver].copier.values[value],) = ranks[receiver].receive([value.type], sender, tag)


def _exchange_sums(
    ranks: Sequence[_RankWriter], demand: Demand, program: StepProgram, ends: dict[int, ir.Operation]
) -> None:
    """Send the parts of sums to the ranks that need them; all ranks add them in the order of ranks.

    Both ranks of a pair send and receive in the same order.
    """
    for number, value in enumerate(program.values.carried):
        tag = f"sum {number}"
        parts = [{rank.number: rank.sums[number]} if number in rank.sums else {} for rank in ranks]
        for sender, receiver in demand.parts.get(number, []):
            ranks[sender].send([ranks[sender].sums[number]], receiver, tag)
            (parts[receiver][sender],) = ranks[receiver].receive([value.type], sender, tag)
        for rank, found in zip(ranks, parts, strict=True):
            if found:
                ordered = [found[r] for r in sorted(found)]
                rank.copier.values[value] = rank.added(ordered, ends[number], number)


def _exchange_rows(ranks: Sequence[_RankWriter], demand: Demand, row: Row) -> None:
    """Send the rows of a stack to the ranks that need all rows, which concatenate them."""
    own = [rank.rows(row) for rank in ranks]
    there = [dict(made) for made in own]
    for sender, receiver in demand.rows.get(row.result, ()):
        ranks[sender].send(list(own[sender].values()), receiver, ROWS)
        types = [value.type for value in own[sender].values()]
        found = ranks[receiver].receive(types, sender, ROWS)
        there[receiver].update(zip(own[sender], found, strict=True))
    for number in sorted(demand.stacks.get(row.result, ())):
        ranks[number].stack(row, there[number])


class _RankWriter:
    """Writer of one rank's function. ``copier.values`` maps values of the step to those of the function."""

    def __init__(
        self,
        program: StepProgram,
        stages: Stages,
        schedule: Schedule,
        demand: Demand,
        updates: Mapping[int, StageUpdate],
        collectives: Sequence[CollectiveBody],
        evicted: Mapping[int, Sequence[ir.Value]],
        steps: Sequence[Step],
        number: int,
        ip: ir.InsertionPoint,
    ) -> None:
        self.number = number
        self._updates, self._ends = updates, group_ends(schedule) if updates else {}
        self._versions = {use.action: use.version for use in forward_weights(schedule)} if updates else {}
        self._weights: dict[tuple[int, int], dict[ir.Value, ir.Value]] = {}
        """(position of the stage in its route, version) -> the values of weights in this version."""
        self._newest: dict[int, int] = {}
        self._group_sums: dict[tuple[int, int], ir.Value] = {}
        """(number of a sum, group of micro-batches) -> the sum so far."""
        self._evicted, self._evictions = evicted, {(e.stage, e.micro_batch): e for e in schedule.evictions}
        self._program, self._stages, self._schedule = program, stages, schedule
        self._captures = program.captures
        self._wanted = demand.results[number]
        self._loc = program.function.location
        arguments = [v for v in program.block.arguments if v in demand.arguments[number]]
        self._function = _function(program, arguments, function_name(number), ip)
        block = self._function.regions[0].blocks[0]
        self._end = ir.InsertionPoint(block)
        self.copier = Copier(self._end, zip(arguments, block.arguments, strict=True))
        self.sums: dict[int, ir.Value] = {}
        self._values: dict[tuple[int, int, ir.Value], ir.Value] = {}
        """(position of the stage in its route, micro-batch, value) -> the value in this function."""
        self._rests: dict[tuple[int, int, ir.Value], ir.Value] = {}
        """The same key -> the gradient that a slice of a sequence passes to the slice before it."""
        self._dependences, self._steps = Dependences(schedule), steps
        self._collectives = {(body.index, body.kind): body for body in collectives}
        self._gathered: dict[tuple[int, ir.Value], ir.Value] = {}
        """(position of the stage in its route, value) -> the gathered value."""
        self.reduced: set[ir.Value] = set()
        """First results of ops that ran between the actions."""

    def rows(self, row: Row) -> dict[int, ir.Value]:
        """Return the rows that this rank computed, by micro-batch."""
        mine = ranks_of(row, self._schedule).get(self.number, ())
        return {m: self._values[row.place[0], m, row.value] for m in mine}

    def stack(self, row: Row, made: Mapping[int, ir.Value]) -> None:
        self.copier.values[row.result] = stacked(row, made, self._function.regions[0].blocks[0])

    def send(self, values: Sequence[ir.Value], to: int, tag: str) -> None:
        send(values, to, tag, loc=self._loc, ip=self._end)

    def receive(self, types: Sequence[ir.Type], source: int, tag: str) -> list[ir.Value]:
        return receive(types, source, tag, loc=self._loc, ip=self._end)

    def added(self, parts: Sequence[ir.Value], op: ir.Operation, number: int) -> ir.Value:
        """Return the sum of ``parts``, by copies of ``op``, which adds a term to the sum ``number``."""
        carried = self._program.carried[number]
        (term,) = [v for v in reads(op) if v != carried]
        total, *rest = parts
        for part in rest:
            total = Copier(self._end, {carried: total, term: part}).copy(op).results[0]
        return total

    def run_actions(self, numbers: Sequence[int]) -> None:
        """Write all actions of the rank in order; ``numbers`` are the sums that they add to."""
        inits = self._program.values.inits
        self.sums = {n: self.copier.values[inits[n]] for n in numbers}
        for index in dict.fromkeys(self._place(action)[1] for action in self._schedule.orders[self.number]):
            if index in self._updates:
                self._weights[index, 0] = {v: self.copier.values[v] for v in self._updates[index].versioned}
                self._newest[index] = 0
        for step in self._steps:
            if isinstance(step, Action):
                self._take(step)
                self._run(step)
                for group in self._ends.get(step, ()):
                    self._update(step.stage, self._place(step)[1], group)
            elif isinstance(step, Collective):
                self._communicate(step)
            elif step.evicts:
                self._move(step)
            elif step.sends:
                self._hand_on(self._about(step), step.other)
            else:
                self._receive(self._about(step), step.other)
        for index, version in self._newest.items():
            update, weights = self._updates[index], self._weights[index, version]
            pairs = zip(update.state, update.new, strict=True)
            self.copier.values.update((new, weights[old]) for old, new in pairs)

    def _about(self, transfer: Transfer) -> Action:
        """Return the action that computed a sent value, or that reads a received one."""
        return self._runs(transfer.stage, transfer.kind in ("SEND_F", "RECV_F"), transfer.micro_batch)

    def _runs(self, stage: int, forward: bool, micro_batch: int) -> Action:
        return Action(stage, "F", micro_batch) if forward else self._dependences.backward(stage, micro_batch)

    def _sources(self, action: Action) -> Iterator[tuple[int, int, list[ir.Value]]]:
        """Yield the stages that pass values to an action (in backward, from behind): place, rank, values."""
        route, index = self._place(action)
        graph, forward = self._schedule.graph, action.kind == "F"
        if action.kind == "W":
            return
        for source in (graph.reads if forward else graph.readers)[index]:
            values = (self._stages.down if forward else self._stages.up).get((source, index), [])
            yield source, self._schedule.rank_of[route[source]], values

    def _take(self, action: Action) -> None:
        """Take the values that other stages of this rank pass to an action."""
        (_, index), m = self._place(action), action.micro_batch
        for source, rank, values in self._sources(action):
            if rank == self.number:
                self._values.update(((index, m, v), self._values[source, m, v]) for v in values)

    def _receive(self, action: Action, other: int | None) -> None:
        """Receive the values that the stage ``other`` (by default the only one) of another rank passes."""
        (route, index), m = self._place(action), action.micro_batch
        for source, rank, values in self._sources(action):
            if values and other in (None, route[source]):
                types = [self._stages.type(v, m % self._schedule.slices) for v in values]
                found = self.receive(types, rank, str(action))
                self._values.update(((index, m, v), made) for v, made in zip(values, found, strict=True))

    def _run(self, action: Action) -> None:
        _, index = self._place(action)
        m, number = action.micro_batch, action.micro_batch % self._schedule.slices
        body = self._stages.bodies[index, action.kind, number]
        version = self._versions.get(Action(action.stage, "F", m))
        weights = {} if version is None else self._weights[index, version]
        known = {**self.copier.values, **weights} if weights else self.copier.values
        sums = [self._sum(n, index, m) for n in body.numbers]
        values = [self._values[index, m, v] for v in body.inputs]
        values += [self._values[index, m - number + before, v] for v, before in body.earlier]
        values += [self._rests[index, m + 1, v] for v in body.rest_in]
        values += [known[self._captures[v]] for v in body.captures]
        values += [self._gathered[index, v] for v in body.gathers]
        types = [self._stages.type(v, number) for v in body.outputs]
        types += [self._stages.rest_type(v, number - 1) for v in body.rest_out] + [v.type for v in sums]
        name, values = (index, action.kind, number), [*values, *sums]
        made = run_action(action, name, values, types, version, loc=self._loc, ip=self._end)
        for value, result in zip(body.outputs, made, strict=False):
            self._values[index, m, value] = result
        rests = made[len(body.outputs) : len(made) - len(sums)]
        self._rests.update(((index, m, v), made) for v, made in zip(body.rest_out, rests, strict=True))
        for summed, result in zip(body.numbers, made[len(made) - len(sums) :], strict=True):
            if self._is_of_groups(summed, index):
                self._group_sums[summed, self._group(m)] = result
            else:
                self.sums[summed] = result

    def _communicate(self, step: Collective) -> None:
        """Gather the parameters of a stage, or reduce its gradients."""
        index = next(route.index(step.stage) for route in self._schedule.routes if step.stage in route)
        body = self._collectives[index, step.kind]
        if step.kind == "UNSHARD":
            values = [self.copier.values[self._captures[v]] for v in body.reads]
        else:
            number = {value: n for n, value in enumerate(self._program.values.carried)}
            values = [self.sums[number[v]] for v in body.reads]
            self.reduced.update(op.results[0] for op in body.ops)
        types = [v.type for v in body.makes]
        made = run_action(step, (index, step.kind), values, types, loc=self._loc, ip=self._end)
        for value, result in zip(body.makes, made, strict=True):
            if step.kind == "UNSHARD":
                self._gathered[index, value] = result
            else:
                self.copier.values[value] = result

    def _update(self, stage: int, index: int, group: int) -> None:
        """Write a stage's optimizer on the sums of a group of micro-batches."""
        update, version = self._updates[index], self._newest[index]
        weights = self._weights[index, version]
        first = group * self._every
        values = [weights[v] for v in update.state]
        values += [self._sum(n, index, first) for n in update.sums]
        values += [self.copier.values[v] for v in update.given]
        types = [v.type for v in update.versioned]
        action = Action(stage, OPTIMIZER, group)
        made = run_action(action, (index, OPTIMIZER), values, types, version, loc=self._loc, ip=self._end)
        self._newest[index] = version + 1
        self._weights[index, version + 1] = dict(zip(update.versioned, made, strict=True))

    def _sum(self, number: int, index: int, micro_batch: int) -> ir.Value:
        """Return a running sum: over all micro-batches or, for sums that an optimizer reads, over a group."""
        if not self._is_of_groups(number, index):
            return self.sums[number]
        init = self.copier.values[self._program.values.inits[number]]
        return self._group_sums.get((number, self._group(micro_batch)), init)

    def _is_of_groups(self, number: int, index: int) -> bool:
        return index in self._updates and number in self._updates[index].sums

    @property
    def _every(self) -> int:
        assert self._schedule.updates is not None, "only a schedule with updates has groups"
        return self._schedule.updates.every

    def _group(self, micro_batch: int) -> int:
        return micro_batch // self._every

    def _hand_on(self, action: Action, other: int | None) -> None:
        """Send the values that the stage ``other`` reads; by default the next, in backward the previous."""
        (route, index), m, forward = self._place(action), action.micro_batch, action.kind == "F"
        graph = self._schedule.graph
        for following in (graph.readers if forward else graph.reads)[index]:
            values = (self._stages.down if forward else self._stages.up).get((index, following))
            if values and other in (None, route[following]):
                reader = self._runs(route[following], forward, m)
                to = self._schedule.rank_of[reader.stage]
                self.send([self._values[index, m, v] for v in values], to, str(reader))

    def _move(self, step: Transfer) -> None:
        """Transfer evicted activations."""
        _, index = self._place(Action(step.stage, "F", step.micro_batch))
        m, values = step.micro_batch, self._evicted[index]
        if not values:
            return
        home, guest = self._schedule.rank_of[step.stage], self._evictions[step.stage, m].rank
        peer = guest if self.number == home else home
        tag = str(Transfer(step.stage, "EVICT" if step.kind in ("EVICT", "ACCEPT") else "LOAD", m))
        if step.sends:
            self.send([self._values[index, m, v] for v in values], peer, tag)
        else:
            found = self.receive([v.type for v in values], peer, tag)
            self._values.update(((index, m, v), made) for v, made in zip(values, found, strict=True))

    def _place(self, action: Action) -> tuple[tuple[int, ...], int]:
        route = self._schedule.route(action.micro_batch)
        return route, route.index(action.stage)

    def finish(self, returned: Sequence[Result]) -> None:
        """End the function with the results of the rank."""
        chosen = [returned[number] for number in self._wanted]
        values = [self.copier.values[value] for value, _, _ in chosen]
        ir.Operation.create("func.return", [], values, loc=self._loc, ip=self._end)
        function, context = self._function, self._function.context
        arguments = [a.type for a in function.regions[0].blocks[0].arguments]
        type_ = ir.FunctionType.get(arguments, [v.type for v in values], context)
        function.attributes["function_type"] = ir.TypeAttr.get(type_, context)
        function.attributes["res_attrs"] = ir.ArrayAttr.get([a for _, _, a in chosen], context)


def _function(
    program: StepProgram, arguments: list[ir.BlockArgument], name: str, ip: ir.InsertionPoint
) -> ir.Operation:
    context = program.function.context
    given = program.function.attributes["arg_attrs"]
    types = [v.type for v in arguments]
    attributes = {
        "sym_name": ir.StringAttr.get(name, context),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [], context), context),
        "arg_attrs": ir.ArrayAttr.get([given[v.arg_number] for v in arguments], context),
    }
    loc = program.function.location
    op = ir.Operation.create("func.func", [], [], attributes, regions=1, loc=loc, ip=ip)
    op.regions[0].blocks.append(*types, arg_locs=[loc] * len(arguments))
    return op
