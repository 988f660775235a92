"""Trial of a model: captured once in f32, compiled for each mesh, two steps compared with eager training."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from subjects import Subject
from torch.utils._pytree import tree_map
from torch_trace import torch_refuses
from training import Captured, Ranks, Values, Wide, errors, state_of

from shardc.diagnostics.base import ShardcError
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.options.parallelism import PlanLike
from shardc.step.sharding.plan import model_plan_of

STEPS = 2
MESHES: dict[str, tuple[dict[str, int], str]] = {
    "data2": ({"data": 2}, "data"),
    "tensor2": ({"tensor": 2}, "tensor"),
    "data2-tensor2": ({"data": 2, "tensor": 2}, "data*tensor"),
    "zero3-4": ({"data": 4}, "zero3"),
}
ROWS = "rows"
"""In place of a plan: the rows of the first input, which is images, are cut."""
CUTS: dict[str, tuple[dict[str, int], str]] = {
    "context2": ({"context": 2}, "context"),
    "context4": ({"context": 4}, "context"),
    "expert2": ({"expert": 2}, "expert"),
    "data2-expert2": ({"data": 2, "expert": 2}, "zero2*expert"),
    "rows2": ({"rows": 2}, ROWS),
    "rows4": ({"rows": 4}, ROWS),
}
"""Meshes on which also counts what part of the work a device has (``cuts.py``)."""
NARROW_MESH = "data2-tensor2"
"""The mesh on which the program is also run in f32."""
BOUNDS = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Of errors (``training.errors``). In f32 it is a floor of :func:`f32_bound`: 84 roundings of the
last bit.
"""
ROUGHNESS = 8
"""In f32 a program may lie this many times as far from eager training as that lies from eager training in
f64. With LeViT's batch norms over few values it lay 4.3 times as far on one CPU, less on others.
"""


@dataclass
class Outcome:
    """What became of one model on one mesh. ``stage`` is where it ended: build, train, trace, compile, run or
    equal.

    Seconds of CPU, which other processes hardly change: ``trace_s`` of the capture (once a model),
    ``compile_s`` of all passes for this mesh. ``f32_bound`` is what errors in f32 were held to.
    ``replicated`` are the ops without a rule; ``torch_refuses`` says why PyTorch by itself cannot trace a
    model that we cannot. ``work``: the part of the step's floating-point operations that a device computes;
    ``repeated``: the lines of those that all do.
    """

    model: str
    kind: str
    mesh: str
    stage: str
    reason: str = ""
    where: str = ""
    trace_s: float = 0.0
    compile_s: float = 0.0
    nodes: int = 0
    f32_bound: float = 0.0
    replicated: list[str] = field(default_factory=list)
    torch_refuses: str = ""
    work: float = 0.0
    repeated: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Its numbers are exact in f32: the learning rate of an f32 program is an f32 input."""
    return torch.optim.SGD(model.parameters(), lr=2**-7, momentum=0.875)


def try_model(
    subject: Subject, meshes: Mapping[str, tuple[dict[str, int], str]] = MESHES
) -> Iterator[Outcome]:
    """An outcome for each mesh, or a single one with mesh ``*`` if the model gets no further than its
    capture.
    """
    stage = "build"
    batches: list[Any] = []
    try:
        model = subject.fresh()
        batches = subject.batches(model, STEPS)
        stage = "train"
        wanted = {dtype: train(subject, model, batches, dtype) for dtype in BOUNDS}
        bounds = {**BOUNDS, torch.float32: f32_bound(wanted)}
        stage = "trace"
        started = time.process_time()
        step = _capture(subject, model, batches[0])
        trace_s = time.process_time() - started
    except Exception as error:
        outcome = _ended(Outcome(subject.name, subject.kind, "*", stage), error)
        if stage == "trace":
            outcome.torch_refuses = torch_refuses(subject, subject.fresh(), batches[0])
        yield outcome
        return
    wide: Captured | None = None
    for name, (mesh, plan) in meshes.items():
        outcome = Outcome(subject.name, subject.kind, name, "compile", trace_s=trace_s)
        outcome.nodes = len(step.capture.graph.graph.nodes)
        outcome.f32_bound = bounds[torch.float32] if name == NARROW_MESH else 0.0
        try:
            started = time.process_time()
            compiled = step.compile(mesh, plan_of(plan, batches[0]))
            outcome.compile_s = time.process_time() - started
            outcome.replicated = sorted(
                {r.message.split()[0] for r in compiled.remarks if r.name == "ReplicatedOp"}
            )
            outcome.work = compiled.work.share
            outcome.repeated = [f"{r.message} {r.where}" for r in compiled.work.remarks()]
            outcome.stage = "run"
            for dtype in BOUNDS if name == NARROW_MESH else [torch.float64]:
                ranks = Ranks(step, compiled.rank_module, widen=dtype is torch.float64)
                outcome.reason = compare(ranks, batches, wanted[dtype], bounds[dtype])
                if outcome.reason and dtype is torch.float64:
                    # A trace in f32 may hold numbers that were rounded to f32, such as the root of a width.
                    wide = wide or _capture(subject, copy.deepcopy(model).to(dtype), _cast(batches[0], dtype))
                    ranks = Ranks(wide, wide.compile(mesh, plan_of(plan, batches[0])).rank_module)
                    outcome.reason = compare(ranks, batches, wanted[dtype], bounds[dtype])
                if outcome.reason:
                    outcome.reason = f"{dtype}: {outcome.reason}"
                    break
            else:
                outcome.stage = "equal"
        except Exception as error:
            _ended(outcome, error)
        yield outcome


def plan_of(plan: str, batch: Any) -> PlanLike:
    """The plan that a name of ``CUTS`` stands for, on a model of these inputs."""
    first = next(iter(batch)) if isinstance(batch, Mapping) else "0"
    return {first: [None, None, "rows"]} if plan == ROWS else plan


def train(subject: Subject, model: torch.nn.Module, batches: list[Any], dtype: torch.dtype) -> list[Values]:
    """Loss, parameters, buffers and optimizer state after each step of a copy of the model in ``dtype``."""
    model = copy.deepcopy(model).to(dtype)
    optimizer = sgd(model)
    made = []
    with _default_dtype(dtype), Wide() if dtype is torch.float64 else nullcontext():
        for batch in batches:
            batch = _cast(batch, dtype)
            optimizer.zero_grad()
            loss = subject.loss(_call(model, batch), batch)
            loss.backward()
            optimizer.step()
            made.append(copy.deepcopy({("loss", "loss"): loss.detach(), **state_of(model, optimizer)}))
    if not all(torch.isfinite(values["loss", "loss"]) for values in made):
        raise ValueError("the eager loss is not finite")
    return made


def f32_bound(wanted: Mapping[torch.dtype, list[Values]]) -> float:
    """How far a program in f32 may be from eager training in f32: 1e-5, or ROUGHNESS times as far as that is
    from f64.

    Both are roundings of the same numbers, so neither can be asked to be nearer to the other than they are to
    those. The largest distance of any tensor counts: which tensor rounding hits is chance. Measured on
    classes of all kinds: without batch norm eager lies within 4e-6 of f64 (Swin: 1.3e-5), and programs within
    4e-6 of eager, so that the floor decides. Batch norm divides by the deviation of as few as four values and
    magnifies rounding without limit: eager itself is off by 4e-5 (EfficientNet), 8e-4 (ResNet, LeViT), 0.9
    (MobileNetV2, for which f32 proves nothing and f64 alone does).
    """
    steps = zip(wanted[torch.float32], wanted[torch.float64], strict=True)
    return max(
        BOUNDS[torch.float32], ROUGHNESS * max(max(errors(narrow, wide).values()) for narrow, wide in steps)
    )


def compare(ranks: Ranks, batches: list[Any], wanted: list[Values], bound: float) -> str:
    """What differs from eager training, worst first; empty if nothing does."""
    found, spread = ranks.train(batches)
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        theirs = {key: value for key, value in theirs.items() if not _is_remade(key, value, ours[key])}
        ours = {key: ours[key] for key in theirs}
        wrong = {key: error for key, error in errors(ours, theirs).items() if not error <= bound}
        if wrong:
            (role, name), error = max(wrong.items(), key=lambda item: item[1])
            return (
                f"step {number}: {len(wrong)} of {len(theirs)} tensors differ, worst {role} {name} by "
                f"{error:.1e}"
            )
    return f"ranks that hold the same block differ by {spread:.1e}" if not spread <= bound else ""


def _is_remade(key: tuple[str, str], theirs: torch.Tensor, ours: torch.Tensor) -> bool:
    """A table that the eager model makes longer once, and a captured step at each call."""
    return key[0] == "buffer" and theirs.shape != ours.shape


def _capture(subject: Subject, model: torch.nn.Module, batch: Any) -> Captured:
    optimizer = sgd(model)
    with _default_dtype(next(model.parameters()).dtype):
        found = capture_step(model, optimizer, batch, loss=subject.loss, context=new_context())
    text = found.module.operation.get_asm(enable_debug_info=True)
    return Captured(found, text, optimizer, model_plan_of(model))


def _ended(outcome: Outcome, error: Exception) -> Outcome:
    if isinstance(error, ShardcError):
        outcome.reason, outcome.where = str(error).splitlines()[0], error.where or ""
    else:
        outcome.reason = f"{type(error).__name__}: {str(error).strip()}"
    return outcome


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _call(model: torch.nn.Module, batch: Any) -> Any:
    return model(**batch) if isinstance(batch, Mapping) else model(*batch)


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    return tree_map(
        lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, batch
    )
