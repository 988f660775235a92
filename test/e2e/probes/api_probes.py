"""Probes of the Python API: each argument of each public function and method, with each odd value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from probe import ODD, Probe
from torch import nn

import shardc
from shardc.options.field import options_of
from shardc.options.given import GROUPS
from shardc.runtime.step import TrainStep
from shardc.step.compile_step import CompiledStep

BATCH = (torch.ones(8, 8),)


@torch.library.custom_op("probes::relu", mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)


@relu.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


AT_ODDS: dict[str, dict[str, Any]] = {
    "micro axis": {"mesh": {"micro": 2}, "micro_batches": 2},
    "more ways than rows": {"mesh": {"data": 16}},
    "no pipeline": {"mesh": {"data": 1}, "schedule": "1f1b"},
    "no axis": {"mesh": {"data": 1}, "plan": "tensor"},
    "edges without fusion": {"mesh": {"data": 1}, "fuse": False, "force_fusion": ["relu+mm"]},
    "edge twice": {"mesh": {"data": 1}, "force_fusion": ["relu+mm"], "forbid_fusion": ["relu+mm"]},
    "stages and ranks": {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "stages": 3},
    "few micro-batches": {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 1},
    "recompute": {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "recompute": ["full"] * 5},
    "memory": {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "memory_limit_bytes": 1e-9},
    "group and field": {"mesh": {"data": 1}, "parallelism": {"mesh": {"data": 2}}, "numerics": {"seed": -1}},
    "old and new": {"mesh": {"data": 1}, "clip": 1.0, "clip_grad_norm": 1.0},
}
"""Options that cannot be had together, or just can."""


NOT_ODD = {
    *(("check(steps)", label) for label in ODD if "**" in label),  # right, and takes for ever
    ("state", "class"),
    ("TrainStep.load(state)", "class"),  # a function of the user's, which raises its own error
}


def compiled(**changes: Any) -> CompiledStep:
    """A step of a small net on one device; ``changes``: of any argument."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    given: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "example_batch": BATCH,
        "loss": lambda output, batch: output.square().mean(),
        "mesh": {"data": 1},
        "fuse": False,
    }
    return shardc.compile_step(**{**given, **changes})


def used(step: CompiledStep) -> None:
    """What is accepted must work: its plan can be read, and on one device a step has a loss."""
    assert str(step.plan)
    if step.compiled.mesh.world_size == 1:
        assert step(BATCH).shape == ()


def api_probes(folder: Path) -> Iterator[Probe]:
    """All of them; files are written below ``folder``."""
    yield from _compile_probes()
    yield from _group_probes()
    step = compiled()
    step(BATCH)
    yield from _method_probes(step, folder)
    yield from _function_probes(step, folder)


def _compile_probes() -> Iterator[Probe]:
    pipeline = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4}
    named = [n for n, p in inspect.signature(shardc.compile_step).parameters.items() if n != "options"]
    owner = {name: group for group, class_ in GROUPS.items() for name in options_of(class_)}
    for name in dict.fromkeys([*named, *owner]):
        base = pipeline if owner.get(name) == "pipeline" or name == "pipeline" else {}
        for label, value in ODD.items():
            if (name, label) in NOT_ODD:
                continue
            yield Probe(
                f"compile_step({name}={label})", lambda b=base, n=name, v=value: used(compiled(**{**b, n: v}))
            )
    for label, options in AT_ODDS.items():
        yield Probe(f"compile_step({label})", lambda o=options: used(compiled(**o)))


def _group_probes() -> Iterator[Probe]:
    for class_ in (shardc.Parallelism, shardc.Pipeline, shardc.Kernels, shardc.Numerics):
        base = {"mesh": {"data": 1}} if class_ is shardc.Parallelism else {}
        for field in fields(class_):
            for label, value in ODD.items():
                given = {**base, field.name: value}
                yield Probe(
                    f"{class_.__name__}({field.name}={label})", lambda c=class_, g=given: repr(c(**g))
                )


METHODS: dict[str, Callable[[CompiledStep, Path, Any], object]] = {
    "step(batch)": lambda step, _, v: step(v),
    "step((leaf,))": lambda step, _, v: step((v,)),
    "step_leaves": lambda step, _, v: step.step_leaves(v),
    "local": lambda step, _, v: step.local(v),
    "trace(batch)": lambda step, folder, v: step.trace(v, folder / "trace.json"),
    "trace(path)": lambda step, _, v: step.trace(BATCH, v),
    "check(steps)": lambda step, _, v: step.check(v),
    "save": lambda step, _, v: step.save(v),
    "save_plan": lambda step, _, v: step.save_plan(v),
    "save_checkpoint(folder)": lambda step, _, v: step.save_checkpoint(v),
    "save_checkpoint(objects)": lambda step, folder, v: step.save_checkpoint(folder / "c", objects=v),
    "save_checkpoint(objects={})": lambda step, folder, v: step.save_checkpoint(
        folder / "c", objects={"a": v}
    ),
    "save_checkpoint(keep_last)": lambda step, folder, v: step.save_checkpoint(folder / "k", keep_last=v),
    "load_checkpoint(folder)": lambda step, _, v: step.load_checkpoint(v),
    "load_checkpoint(objects)": lambda step, folder, v: step.load_checkpoint(folder / "good", objects=v),
    "load_state_dict": lambda step, _, v: step.load_state_dict(v),
    "load_state_dict(value)": lambda step, _, v: step.load_state_dict({**step.state_dict(), "0.bias": v}),
    "bind": lambda step, _, v: step.bind(v),
    "hyper": lambda step, _, v: step.hyper.__setitem__("group0.lr", v),
    "hyper(name)": lambda step, _, v: step.hyper.__setitem__(v, 0.1),
    "seed": lambda step, _, v: setattr(step, "seed", v),
    "TrainStep.load(folder)": lambda _, __, v: TrainStep.load(v),
    "TrainStep.load(device)": lambda _, folder, v: TrainStep.load(folder / "out", device=v),
    "TrainStep.load(state)": lambda _, folder, v: TrainStep.load(folder / "out", state=v),
    "TrainStep.load(timeout_s)": lambda _, folder, v: TrainStep.load(folder / "out", timeout_s=v),
}


def _method_probes(step: CompiledStep, folder: Path) -> Iterator[Probe]:
    step.save(folder / "out")
    step.save_checkpoint(folder / "good")
    for name, call in METHODS.items():
        for label, value in ODD.items():
            if (name, label) in NOT_ODD:
                continue
            yield Probe(f"{name}: {label}", lambda c=call, v=value: c(step, folder, v))


FUNCTIONS: dict[str, Callable[[CompiledStep, Path, Any], object]] = {
    "explain_fusion": lambda _, __, v: shardc.explain_fusion(v, torch.ones(2)),
    "explain_memory": lambda _, __, v: shardc.explain_memory(v, torch.ones(2)),
    "read_weights": lambda _, __, v: shardc.read_weights(v),
    "export_weights(step)": lambda _, folder, v: shardc.export_weights(v, nn.Linear(2, 2), folder / "hf"),
    "export_weights(model)": lambda step, folder, v: shardc.export_weights(step, v, folder / "hf"),
    "export_weights(folder)": lambda step, _, v: shardc.export_weights(step, step_model(step), v),
    "export_weights(shard_bytes)": lambda step, folder, v: shardc.export_weights(
        step, step_model(step), folder / "hf", shard_bytes=v
    ),
    "rule(operator)": lambda _, __, v: shardc.rule(v, samples=[BATCH])(lambda call: "([a])->([a])"),
    "rule(samples)": lambda _, __, v: shardc.rule("probes::relu", samples=v)(lambda call: "([a,b])->([a,b])"),
    "rule(sample)": lambda _, __, v: shardc.rule("probes::relu", samples=[(v,)])(
        lambda call: "([a,b])->([a,b])"
    ),
    "rule(function)": lambda _, __, v: shardc.rule("probes::relu", samples=[BATCH])(v),
    "tune(path)": lambda _, __, v: shardc.tune(v),
    "tune(target)": lambda _, folder, v: shardc.tune(folder / "none.py", target=v),
    "tune(trials)": lambda _, folder, v: shardc.tune(folder / "none.py", trials=v),
}


def step_model(step: CompiledStep) -> nn.Module:
    """A model of the names that the step's has."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def _function_probes(step: CompiledStep, folder: Path) -> Iterator[Probe]:
    for name, call in FUNCTIONS.items():
        for label, value in ODD.items():
            yield Probe(f"{name}: {label}", lambda c=call, v=value: c(step, folder, v))
