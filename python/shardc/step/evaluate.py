"""``step.evaluate`` and ``step.forward``: programs in eval mode over the tensors of a training step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shardc.backends.torch.description import describe_program
from shardc.diagnostics.api import NotEqual, TooManyShapes
from shardc.frontend.importing.recorder import caller_line
from shardc.frontend.step.batch import flatten_batch
from shardc.frontend.step.forward import Evaluated
from shardc.frontend.step.outputs import Outputs
from shardc.options.step import StepOptions
from shardc.passes.pipeline.stages.held import read_held
from shardc.passes.plan.plan import ATTENTION, DimNames, Entry, Plan
from shardc.runtime.outputs import Result
from shardc.runtime.report.messages import ProgramCompiledWarning, warn_at
from shardc.runtime.same_batch import shapes_of
from shardc.runtime.state import State
from shardc.runtime.step import TrainStep
from shardc.step.compile_forward import CompiledForward, forward_of
from shardc.step.other_shapes import bucketed
from shardc.step.shard import Compiled

Form = tuple[object, ...]
"""Key of an eval program: what it returns, and the names, shapes and dtypes of its batch."""


@dataclass
class Forwards:
    """Eval programs of one step. Each form of a batch gets its own, compiled at its first use."""

    model: torch.nn.Module
    loss: Callable[..., Tensor] | None
    options: StepOptions
    _made: dict[Form, CompiledForward] = field(default_factory=dict)
    made: dict[str, CompiledForward] = field(default_factory=dict)
    """Programs compiled so far, by a name to print."""

    def evaluate(self, compiled: Compiled, running: TrainStep, batch: object) -> Result:
        """Compute the loss, and the outputs that need no gradients, of the batch padded to its bucket."""
        batch = bucketed(batch, self.options.shapes.bucket)
        return self._at(compiled, running, batch, "evaluate").result(batch)

    def forward(self, compiled: Compiled, running: TrainStep, batch: object) -> object:
        """Compute the model's output."""
        return self._at(compiled, running, batch, "forward")(batch)

    def program(self, compiled: Compiled, batch: object, what: str) -> CompiledForward:
        """Return the program of ``evaluate`` or ``forward``, with tensors of its own, to be checked."""
        return self._made_for(compiled, batch, what)

    def _made_for(
        self, compiled: Compiled, batch: object, what: str, over: State | None = None
    ) -> CompiledForward:
        module, plan = compiled.pipeline_module, held_plan(compiled)
        held = None if module is None else read_held(module)
        return forward_of(self.model, batch, self.options, plan, self._evaluated(what), over, held)

    def _name(self, what: str, names: Iterable[str], tensors: Iterable[Tensor]) -> str:
        """Return a program's name; numbered if batches differ only in constants or containers."""
        name = f"step.{what} for batch {shapes_of(dict(zip(names, tensors, strict=True)))}"
        count = sum(known.startswith(name) for known in self.made)
        return f"{name}, number {count + 1}" if count else name

    def _check_limit(self, what: str, name: str) -> None:
        """Raise TooManyShapes if this program would exceed the step's limit of shapes."""
        seen = [known for known in self.made if known.startswith(f"step.{what} ")]
        count, limit = len(seen) + 1, self.options.shapes.shapes_limit
        if count > limit:
            file, line = caller_line()[0]
            where = f"{file}:{line}"
            raise TooManyShapes(shape=name, count=count, limit=limit, seen="; ".join(seen), where=where)

    def _evaluated(self, what: str) -> Evaluated:
        return Evaluated(self.loss, Outputs(self.options.results.outputs or {}), whole=what == "forward")

    def _at(self, compiled: Compiled, running: TrainStep, batch: object, what: str) -> CompiledForward:
        tensors, tree = flatten_batch(batch)
        shapes = tuple((tuple(t.shape), t.dtype) for t in tensors)
        form = (what, tree.spec, tree.names, repr(tree.constants), shapes)
        if form not in self._made:
            name = self._name(what, tree.names, tensors)
            self._check_limit(what, name)
            started = time.perf_counter()
            made = self._made_for(compiled, batch, what, running.state)
            if self.options.numerics.verify and not (outcome := made.check()).passed:
                raise NotEqual(table=outcome.render())
            self._made[form] = self.made[name] = made
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"compiled a program for step.{what} and batches of this form, {took}"
            warn_at("ForwardCompiled", text, ProgramCompiledWarning, caller_line()[0])
        found = self._made[form]
        found.running.seed, found.running.steps_done = running.seed, running.steps_done
        return found


def held_plan(compiled: Compiled) -> Plan:
    """Return a plan with the layouts of a compiled step's arguments, as far as whole mesh axes express them.

    Axes that the step's plan adds in a later round of propagation, such as ZeRO's on parameters, are added in
    that round here too. So activations get the step's shardings. Batches of a pipeline follow its plan, since
    a dim that is split into micro-batches is whole on each rank.
    """
    described = describe_program(compiled.rank_module)
    sizes = {axis["name"]: axis["size"] for axis in described["mesh"]}
    planned = compiled.plan
    plan = Plan(planned.text, pipeline=planned.pipeline, attention=planned.attention)
    for entry in described["arguments"]:
        dims = entry["sharding"]["dims"]
        if all(pre == 1 and size == sizes[name] for dim in dims for name, pre, size in dim):
            key = (entry["role"], entry["name"])
            cut = tuple(tuple(name for name, _, _ in dim) for dim in dims)
            plan.entries[key] = _held_entry(cut, planned.entries.get(key, Entry()))
    if ATTENTION in planned.entries:
        plan.entries[ATTENTION] = planned.entries[ATTENTION]
    if plan.pipeline:
        inputs = {key: entry for key, entry in planned.entries.items() if key[0] == "input"}
        plan.entries.update(inputs)
    return plan


def _held_entry(cut: DimNames, planned: Entry) -> Entry:
    """Return a plan entry for the sharding ``cut``. It keeps the rounds in which ``planned`` adds axes."""
    rounds = {axis: priority for priority, axis, _ in planned.refine}
    early = tuple(tuple(axis for axis in axes if axis not in rounds) for axes in cut)
    refine = [(rounds[axis], axis, d) for d, axes in enumerate(cut) for axis in axes if axis in rounds]
    return Entry(early, closed=True, refine=tuple(refine), why="the step's layout")
