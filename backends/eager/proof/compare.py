"""Proof by execution: a rank program on simulated ranks must compute what the global program computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from math import isfinite, prod

from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.collectives import without_padding
from shardc.backends.eager.interpreter import run
from shardc.backends.eager.pipeline import read_pipeline, run_pipeline
from shardc.backends.eager.program import STEP, find_step
from shardc.backends.eager.proof import tolerance as measure
from shardc.backends.eager.proof.blocks import adds_over_time, as_stored, cut, join, restored, without_time
from shardc.backends.eager.proof.comparison import Comparison, Proof
from shardc.backends.eager.proof.perturb import perturbed
from shardc.backends.eager.proof.rows import compared, parameter_of
from shardc.backends.eager.proof.signature import (
    Key,
    Port,
    holds_blocks,
    merged,
    read_arguments,
    read_results,
)
from shardc.backends.eager.proof.stale_weights import StaleStep, asynchronous_schedule, stages_of_state
from shardc.backends.eager.proof.summed import SUMMED, with_summed
from shardc.backends.eager.proof.tolerance import (
    Tolerance,
    coarsest_dtype,
    for_rounding,
    in_f64,
    own_precision,
)
from shardc.diagnostics.oracle import MissingInput, NoStep, ProgramsDiffer
from shardc.dialects.dist.interleaving import Interleaving
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.manager.attributes import observed
from shardc.passes.manager.program import micro_batches_apart
from shardc.passes.pipeline.checks.check_rank_programs import check_rank_programs
from shardc.runtime.check import STATE_ROLES
from shardc.runtime.comm.layout import with_padding
from shardc.runtime.kernels.loaders import Kernels as Library
from shardc.runtime.report import progress

STALE = (
    "{schedule} changes the mathematics, so there are two comparisons: the step before it was cut into "
    "stages with one device, and the pipeline with that step on the old weights of each micro-batch"
)

APART = (
    "{count} micro-batches run as separate programs, which changes the mathematics: the reference is the "
    "loop that accumulates their gradients on one device, not the model on the whole batch"
)


def compare_step(
    global_module: ir.Module,
    rank_module: ir.Module,
    inputs: Mapping[Key, Tensor],
    *,
    steps: int = 1,
    widen: bool = True,
    tolerance: Tolerance | None = None,
    library: Library | None = None,
    uncut: ir.Module | None = None,
) -> Comparison:
    """Run both programs for ``steps`` steps and compare loss, observed gradients, and updated state.

    ``inputs``: a global tensor for the (role, name) of each argument. The seed increases by one each step, as
    at run time. ``rank_module``: a module of level 3, or of level 2, whose values are global.

    With ``widen``, both run in f64, and each program continues from its own state. In their own precision,
    both continue from the global program's state, so that rounding errors do not accumulate and each step is
    judged alone. The rank program then runs the compiled kernels of ``library``; in f64 kernels are
    interpreted. If values differ, the global program is run in f64, too: where its own rounding changes
    results by more than usual, more is allowed (:func:`~tolerance.for_rounding`).

    A pipeline that updates its stages separately is another function than the global program. Then ``uncut``,
    the level 3 step before it was cut into stages, is compared with the global program. The pipeline is
    compared with ``uncut``, run on the old weights that the schedule gives each micro-batch.

    Raises MissingInput, ProgramsDiffer for other arguments and results, and ExecutionFailed.
    """
    ranked = _Program(rank_module)
    schedule = asynchronous_schedule(rank_module)
    if schedule is None:
        whole, outcome = _Program(global_module), Comparison()
    elif uncut is None:
        raise ProgramsDiffer(problem=f"the schedule {schedule.name} changes the mathematics")
    else:
        whole = _Stale(uncut, rank_module, schedule)
        outcome = compare_step(global_module, uncut, inputs, steps=steps, widen=widen, tolerance=tolerance)
    _check_same(whole, ranked)
    is_given = tolerance is not None
    if tolerance is None:
        tolerance = in_f64() if widen else own_precision(coarsest_dtype(whole.step))
    values: dict[Key, Tensor] = {port.key: _input(port, inputs) for port in whole.arguments}
    hyper = {name: float(t.abs().max()) for (role, name), t in values.items() if role == "hyper"}
    rates = [value for name, value in hyper.items() if name.rpartition(".")[2] == "lr"]
    rate = whole.updates * max(rates, default=0.0)
    blocks = ranked.cut(values)
    for step in range(steps):
        progress.step("training step in f64" if widen else "training step as compiled", step + 1, steps)
        expected = whole.run(whole.cut(values), widen)
        found = ranked.run(blocks, widen, None if widen else library)
        wanted = {key: value.join(value.shape)[0] for key, value in expected.items()}
        moved = rate * (step + 1 if widen else 1)
        before = None if widen else values
        rows = compared(step, wanted, found, tolerance, moved, {}, before)
        if failing := {parameter_of(row.role, row.tensor) for row in rows if not row.ok}:
            summed = whole.summed(values, widen, failing)
            rows = compared(step, wanted, found, tolerance, moved, summed, before)
            if not (widen or is_given or all(row.ok for row in rows)):
                exact = {key: v.join(v.shape)[0] for key, v in whole.run(whole.cut(values), True).items()}
                rounded = compared(step, exact, expected, tolerance, moved, summed)
                error = max((row.error for row in rounded if row.bound and isfinite(row.error)), default=0.0)
                looser = for_rounding(tolerance, error)
                rows = compared(step, wanted, found, looser, moved, summed, before)
        outcome.rows += rows
        outcome.undefined |= any(bool(tensor.isnan().any()) for tensor in wanted.values())
        outcome.unobserved += [":".join(key) for key in wanted if key not in found and step == 0]
        values.update({key: tensor for key, tensor in wanted.items() if key[0] in STATE_ROLES})
        values.update({key: tensor + 1 for key, tensor in values.items() if key[0] == "seed"})
        blocks = ranked.cut(values)
        if widen:
            blocks.update({key: value.blocks for key, value in found.items() if key[0] in STATE_ROLES})
    return outcome


def prove_step(
    global_module: ir.Module,
    rank_module: ir.Module,
    inputs: Mapping[Key, Tensor],
    *,
    steps: int = 2,
    library: Library | None = None,
    uncut: ir.Module | None = None,
) -> Proof:
    """Run :func:`compare_step` in f64 and in the program's own precision.

    Both comparisons start from ``inputs`` with perturbed state (:func:`perturbed`). They run two steps by
    default, so that the state that a step leaves is used. If the perturbed global program computes NaNs,
    because a parameter left the domain of a logarithm, they start from ``inputs`` itself. ``library``:
    compiled kernels for the own precision. ``uncut``: for a pipeline that computes with older weights, the
    step before the cut. The programs of a pipeline's ranks are first checked against its schedule, which
    raises RankProgramBroken.
    """
    check_rank_programs(rank_module)
    schedule = asynchronous_schedule(rank_module)
    compare = partial(compare_step, global_module, rank_module, steps=steps, uncut=uncut)
    given = perturbed(inputs, global_module)
    exact = compare(given)
    if exact.undefined:
        given = inputs
        exact = compare(given)
    own = compare(given, widen=False, library=library)
    if schedule is not None:
        other = "what its schedule says, which is not the single-device program"
        return Proof(exact, own, STALE.format(schedule=schedule.name), other)
    if count := micro_batches_apart(global_module):
        other = "the loop that accumulates gradients, which is not the model on the whole batch"
        return Proof(exact, own, APART.format(count=count), other)
    return Proof(exact, own)


@dataclass
class _Value:
    """Result or observed value, with a block for each rank. ``sharding``: None for a global value.

    ``copies``: the same value's blocks on other pipeline ranks.
    """

    blocks: list[Tensor]
    sharding: Sharding | None
    mesh: Mesh
    shape: tuple[int, ...]
    copies: list[list[Tensor]] = field(default_factory=list)
    interleaving: Interleaving | None = None

    def join(self, shape: tuple[int, ...]) -> tuple[Tensor, float]:
        """Return the whole tensor of global ``shape``, and the largest difference between replicas."""
        if self.sharding is None:
            return restored(without_padding(self.blocks[0], shape), self.interleaving), 0.0
        whole, spread = join(self.blocks, self.sharding, self.mesh, shape, self.interleaving)
        for copy in self.copies:
            spread = max(spread, *map(measure.difference, copy, self.blocks))
        return whole, spread


class _Program:
    """One of the two modules, with its arguments and results by role and name.

    ``pipeline``: set if ranks run separate programs; ``mesh`` is then the mesh of each of them.
    """

    updates = 1
    """Number of weight updates in a step."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.pipeline = read_pipeline(module)
        step = find_step(module) if self.pipeline is None else self.pipeline.functions[0]
        if step is None:
            raise NoStep(function=STEP)
        self.step = step
        self.mesh = self.pipeline.mesh if self.pipeline else read_mesh(module) or Mesh(())
        self.codec = ShardingCodec(module.context, self.mesh)
        if self.pipeline is not None:
            self.arguments, self.results = merged(self.pipeline.arguments), merged(self.pipeline.results)
        else:
            self.arguments, self.results = read_arguments(step, self.codec), read_results(step, self.codec)
        self._stored = {port.name: port.interleaving for port in self.arguments if port.role == "param"}
        self.is_ranked = holds_blocks([*self.arguments, *self.results], self.mesh)

    def cut(self, values: Mapping[Key, Tensor]) -> dict[Key, list[Tensor]]:
        return {port.key: self._blocks(port, values[port.key]) for port in self.arguments}

    def run(
        self, blocks: Mapping[Key, list[Tensor]], widen: bool, library: Library | None = None
    ) -> dict[Key, _Value]:
        """Run one step; return its results and observed values."""
        made: dict[Key, _Value] = {}

        def observe(name: str, values: list[Tensor], op: ir.Operation) -> None:
            role, _, rest = name.partition(":")
            value = self._observed(name, values, op)
            known = made.get((role, rest))
            if known and value.sharding and adds_over_time(value.sharding, value.mesh):
                value.blocks = [a + b for a, b in zip(known.blocks, value.blocks, strict=True)]
            made[role, rest] = value

        if self.pipeline is not None:
            given = [blocks] * len(self.pipeline.functions)
            found = run_pipeline(self.pipeline, given, widen=widen, observe=observe, library=library)
        else:
            arguments = [blocks[p.key] for p in self.arguments]
            values = run(self.module, arguments, widen=widen, observe=observe, library=library)
            found = [{port.key: value for port, value in zip(self.results, values, strict=True)}]
        for port in self.results:
            first, *others = [results[port.key] for results in found if port.key in results]
            made[port.key] = self._value(port, first, others)
        return made

    def summed(self, values: Mapping[Key, Tensor], widen: bool, names: Collection[str]) -> dict[str, float]:
        """Return the magnitudes that were summed for the gradients ``names``: only for a global program."""
        if self.is_ranked:
            return {}
        program = _Program(with_summed(self.module, names))
        made = program.run(program.cut(values), widen)
        return {name: measure.magnitude(v.blocks[0]) for (role, name), v in made.items() if role == SUMMED}

    def _value(self, port: Port, blocks: list[Tensor], copies: list[list[Tensor]]) -> _Value:
        sharding = port.sharding if self.is_ranked else None
        return _Value(blocks, sharding, self.mesh, port.global_type.shape, copies, port.interleaving)

    def _blocks(self, port: Port, tensor: Tensor) -> list[Tensor]:
        if self.is_ranked and port.sharding:
            return cut(tensor, port.sharding, self.mesh, port.padded, port.interleaving)
        return [with_padding(as_stored(tensor, port.interleaving), port.padded)]

    def _observed(self, name: str, values: list[Tensor], op: ir.Operation) -> _Value:
        shape, stored = tuple(values[0].shape), self._stored.get(name.partition(":")[2])
        if not self.is_ranked:
            return _Value(values, None, self.mesh, shape, interleaving=stored)
        known, index = "dist.shardings" in op.attributes, dict(observed(op))[name]
        said = op.attributes["dist.shardings"][index] if known else None
        if not isinstance(said, ShardingAttr):
            raise ProgramsDiffer(problem=f"the op that makes {name} has no sharding for it")
        sharding = self.codec.read(said)
        ways = (prod(axis.size for axis in axes) for axes in without_time(sharding, self.mesh).dims)
        shape = tuple(n * parts for n, parts in zip(shape, ways, strict=True))
        return _Value(values, sharding, self.mesh, shape, interleaving=stored)


class _Stale(_Program):
    """Step ``uncut`` of level 3, run on the old weights that ``schedule`` gives the ``pipeline``."""

    def __init__(self, uncut: ir.Module, pipeline: ir.Module, schedule: Schedule) -> None:
        super().__init__(uncut)
        assert schedule.updates is not None
        self.updates = schedule.micro_batches // schedule.updates.every
        self._schedule, self._stages = schedule, stages_of_state(pipeline)

    def run(
        self, blocks: Mapping[Key, list[Tensor]], widen: bool, library: Library | None = None
    ) -> dict[Key, _Value]:
        found = StaleStep(self.module, self._schedule, self._stages, blocks, widen).run()
        return {port.key: self._value(port, found[port.key], []) for port in self.results}


def _input(port: Port, inputs: Mapping[Key, Tensor]) -> Tensor:
    if port.key in inputs:
        return inputs[port.key]
    names = [name for _, name in inputs]
    nearest = ", ".join(get_close_matches(port.name, names, cutoff=0.0)) or "none"
    shape = list(port.global_type.shape)
    raise MissingInput(role=port.role, name=port.name, shape=shape, nearest=nearest)


def _check_same(whole: _Program, ranked: _Program) -> None:
    """Raise ProgramsDiffer unless arguments and results match, and state keeps its sharding."""
    for kind in ("arguments", "results"):
        ours = {port.key: port for port in getattr(whole, kind)}
        theirs = {port.key: port for port in getattr(ranked, kind)}
        for role, name in sorted(ours.keys() ^ theirs.keys()):
            lacking = "rank" if (role, name) in ours else "global"
            raise ProgramsDiffer(problem=f"the {lacking} program has no {role} {name!r} among its {kind}")
        for key, port in ours.items():
            one, other = port.global_type, theirs[key].global_type
            if one != other:
                raise ProgramsDiffer(
                    problem=f"{port} is a {one} in the global program and a {other} in the rank program"
                )
    held = {port.key: port for port in ranked.arguments}
    for port in ranked.results:
        before = held[port.key].sharding if port.key in held else None
        if before and port.sharding and before.normal() != port.sharding.normal():
            raise ProgramsDiffer(
                problem=f"{port} is sharded as {before} before the step and as {port.sharding} after it"
            )
