"""Training on one device with torch, and the same training as a rank program on simulated ranks, in f64.

The two are compared tensor by tensor after each step. The error of a tensor is ``max|a - b| / scale`` with
``scale = max|b| + 1e-3 * (the largest max|b| of its kind)``, as in ``shardc.backends.eager.proof.tolerance``;
ranks that hold the same block must agree to the same bound.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from models import TRAININGS, Batch, Training, default_f64
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch_mlir import ir

from shardc.backends.eager import interpreter
from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.blocks import cut, join
from shardc.backends.eager.proof.signature import read_arguments, read_results
from shardc.backends.eager.proof.tolerance import FLOOR, difference, magnitude
from shardc.cost.cluster.cluster import Cluster
from shardc.dialects.context import new_context
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture
from shardc.options.experts import ROOM_FOR_ALL, Experts
from shardc.options.pipeline import Pipeline
from shardc.options.recompute import Recompute
from shardc.runtime.kernels.library import Library
from shardc.step.shard import Compiled, PlanLike, compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.sharding.plan import model_plan_of
from shardc.step.values import batch_leaves, example_inputs

STEPS = 3
BOUND = 1e-9
Key = tuple[str, str]
"""Role and name of a tensor."""
Values = dict[Key, Tensor]


class Wide(TorchDispatchMode):
    """Runs in f64 what a model asks to be computed in f32 (norms, logits): 1e-9 is then within reach."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = lambda leaf: torch.float64 if leaf is torch.float32 else leaf  # noqa: E731
        return func(*tree_map(wide, args), **tree_map(wide, kwargs or {}))


def train_eagerly(
    training: Training, steps: int = STEPS, clip: float | None = None, *, wide: bool = True
) -> list[Values]:
    """Loss, parameters, buffers and optimizer state after each step of the training that a user wrote.

    ``wide``: all of it in f64; else in the precision that the model asks for.
    """
    model = training.fresh()
    optimizer = training.optimizer(model)
    made = []
    with default_f64(), Wide() if wide else nullcontext():
        for batch in training.batches(steps):
            optimizer.zero_grad()
            output = model(**batch) if isinstance(batch, Mapping) else model(*batch)
            loss = training.loss(output, batch) if training.loss else output.loss
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            made.append(copy.deepcopy({("loss", "loss"): loss.detach(), **state_of(model, optimizer)}))
    return made


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Values:
    """Parameters, buffers and optimizer state, by role and name."""
    state: Values = {("buffer", name): buffer for name, buffer in model.named_buffers()}
    for name, parameter in model.named_parameters():
        state["param", name] = parameter.detach()
        for key, value in optimizer.state[parameter].items():
            if isinstance(value, Tensor):
                state["opt_state", f"{name}/{key}"] = value
    return state


@dataclass(frozen=True)
class Captured:
    """A step captured once, for many meshes: compiling changes the module, so each compile gets a copy."""

    capture: Capture
    text: str
    optimizer: torch.optim.Optimizer
    model_plan: Mapping[str, str] | None

    def compile(
        self,
        mesh: Mapping[str, int],
        plan: PlanLike,
        micro_batches: int = 1,
        pipeline: Pipeline | None = None,
        recompute: Recompute = "none",
        experts: Experts = ROOM_FOR_ALL,
        cluster: Cluster | None = None,
    ) -> Compiled:
        with new_context():
            capture = replace(self.capture, module=ir.Module.parse(self.text))
        whole = make_mesh(mesh, micro_batches)
        own = self.model_plan
        return compile_capture(
            capture,
            whole,
            plan,
            model_plan=own,
            pipeline=pipeline,
            recompute=recompute,
            experts=experts,
            cluster=cluster,
        )


def capture(training: Training, clip: float | None = None, noted: Sequence[str] = ()) -> Captured:
    with default_f64():
        model = training.fresh()
        optimizer = training.optimizer(model)
        (batch,) = training.batches(1)
        found = capture_step(
            model,
            optimizer,
            batch,
            loss=training.loss,
            clip_grad_norm=clip,
            context=new_context(),
            noted=noted,
        )
    text = found.module.operation.get_asm(enable_debug_info=True)
    return Captured(found, text, optimizer, model_plan_of(model))


@cache
def captured(name: str) -> Captured:
    """One of ``TRAININGS``, captured once in a process."""
    return capture(TRAININGS[name])


@cache
def trained(name: str) -> list[Values]:
    """One of ``TRAININGS``, trained once in a process."""
    return train_eagerly(TRAININGS[name])


class Ranks:
    """A rank program and its state on simulated ranks. ``seed`` is the first one; goes up by one a step.

    ``widen``: run in f64; else in the program's own precision, and its kernels as ``library`` has them
    compiled.
    """

    def __init__(
        self,
        step: Captured,
        module: ir.Module,
        seed: int = 0,
        *,
        widen: bool = True,
        library: Library | None = None,
    ) -> None:
        mesh, function = read_mesh(module), find_step(module)
        assert mesh is not None and function is not None
        codec = ShardingCodec(module.context, mesh)
        self._step, self._module, self._mesh = step, module, mesh
        self._arguments, self._results = read_arguments(function, codec), read_results(function, codec)
        self._blocks: dict[Key, list[Tensor]] = {}
        self._seed, self._widen, self._library = seed, widen, library

    def train(self, batches: list[Batch]) -> tuple[list[Values], float]:
        """What :func:`train_eagerly` gives, and by how much ranks differ that should agree."""
        made, spread = [], 0.0
        for batch in batches:
            self._take(batch)
            results = self._run([self._blocks[p.key] for p in self._arguments])
            values: Values = {}
            for port, blocks in zip(self._results, results, strict=True):
                assert port.sharding is not None
                shape, stored = port.global_type.shape, port.interleaving
                values[port.key], gap = join(blocks, port.sharding, self._mesh, shape, stored)
                spread = max(spread, gap)
                self._blocks[port.key] = blocks
            made.append(values)
        return made, spread

    def _run(self, blocks: list[list[Tensor]]) -> list[list[Tensor]]:
        """One step: each rank's block of each result, from those of the arguments."""
        return interpreter.run(self._module, blocks, widen=self._widen, library=self._library)

    def _take(self, batch: Batch) -> None:
        """Inputs for one step: state from the step before, or the model's own values at the first."""
        step = self._step
        inputs = example_inputs(step.capture, step.optimizer, batch, self._seed)
        if self._blocks:
            inputs |= {("input", n): t for n, t in batch_leaves(step.capture, batch).items()}
            for number in step.capture.hyperparameters:  # the very first step's may differ
                inputs["hyper", number.name].fill_(number.value(step.optimizer))
        for port in self._arguments:
            if port.role not in ("param", "opt_state", "buffer") or port.key not in self._blocks:
                assert port.sharding is not None
                whole, stored = inputs[port.key].clone(), port.interleaving
                self._blocks[port.key] = cut(whole, port.sharding, self._mesh, port.padded, stored)
        self._seed += 1


def errors(found: Values, wanted: Values) -> dict[Key, float]:
    """The error of each tensor, by the metric of this module."""
    assert found.keys() == wanted.keys()
    largest: dict[str, float] = {}
    for key, tensor in wanted.items():
        largest[_kind(key)] = max(largest.get(_kind(key), 0.0), magnitude(tensor))
    made = {}
    for key, tensor in wanted.items():
        scale = magnitude(tensor) + FLOOR * largest[_kind(key)]
        gap = difference(found[key], tensor)
        made[key] = gap / scale if gap else 0.0
    return made


def _kind(key: Key) -> str:
    role, name = key
    return f"{role}/{name.rpartition('/')[2]}" if role == "opt_state" else role


def check_equal(step: Captured, compiled: Compiled, training: Training, wanted: list[Values]) -> None:
    """The rank program, trained as long as ``wanted``, must make its losses and state after each step."""
    check_trained(Ranks(step, compiled.program), training, wanted)


def check_trained(ranks: Ranks, training: Training, wanted: list[Values], bound: float = BOUND) -> None:
    """``ranks``, trained as long as ``wanted``, must make its losses and state after each step."""
    found, spread = ranks.train(training.batches(len(wanted)))
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        wrong = {key: error for key, error in errors(ours, theirs).items() if not error <= bound}
        worst = sorted(wrong.items(), key=lambda item: -item[1])[:8]
        assert not wrong, f"step {number}: {len(wrong)} of {len(theirs)} tensors differ: {worst}"
    assert spread <= bound, f"ranks that hold the same block differ by {spread}"
