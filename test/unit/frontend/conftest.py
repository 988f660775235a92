"""A captured step run next to real eager training: the oracle of all front-end tests."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from shardc.frontend.step.batch import flatten_batch
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture


@dataclass
class Program:
    """A capture with the values of its state.

    ``step`` runs the FX graph on real tensors and keeps what it returns.
    """

    capture: Capture
    optimizer: torch.optim.Optimizer
    seed: int = 0

    def __post_init__(self) -> None:
        self.values = dict(self.capture.initial_values())
        self.steps = 0

    def step(self, batch: Any) -> torch.Tensor:
        tensors, tree = flatten_batch(batch)
        values = {**self.values, ("seed", "seed"): torch.tensor(self.seed + self.steps)}
        values |= {("input", name): tensor for name, tensor in zip(tree.names, tensors, strict=True)}
        values |= {("constant", name): tensor for name, tensor in self.capture.constants.items()}
        dtypes = {spec.name: spec.dtype for spec in self.capture.with_role("hyper")}
        for item in self.capture.hyperparameters:
            number = item.value(self.optimizer)
            if self.steps == 0 and item.first_step is not None:
                number = item.first_step
            values["hyper", item.name] = torch.tensor(number, dtype=dtypes[item.name])
        with torch.no_grad():
            results = self.capture.graph(*(values[s.role, s.name].clone() for s in self.capture.arguments))
        self.steps += 1
        named = {(s.role, s.name): r for s, r in zip(self.capture.results, results, strict=True)}
        for spec in self.capture.results:
            assert named[spec.role, spec.name].shape == spec.shape, spec
            assert named[spec.role, spec.name].dtype == spec.dtype, spec
        loss = named.pop(("loss", "loss"))
        self.values = named
        return loss


def eager_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    loss: Callable[[Any, Any], torch.Tensor] | None,
    clip: float | None,
) -> torch.Tensor:
    """One step as users write it."""
    optimizer.zero_grad()
    output = model(**batch) if isinstance(batch, Mapping) else model(*batch)
    value = output.loss if loss is None else loss(output, batch)
    value.backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return value.detach()


@pytest.fixture
def f64() -> Iterator[None]:
    """Default dtype f64: the step counts of optimizers are then f64 too, and 1e-9 can be asked for."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def run_step() -> Callable[[Capture, torch.optim.Optimizer, Any, int], torch.Tensor]:
    """The loss of one captured step from its initial values, with a given seed."""
    return lambda capture, optimizer, batch, seed: Program(capture, optimizer, seed).step(batch)


@pytest.fixture
def new_program() -> type[Program]:
    """A captured step with the values of its state."""
    return Program


@pytest.fixture
def follows_eager() -> Callable[..., Capture]:
    """A check that a captured step equals eager training for some steps.

    Losses, parameters, buffers and state.
    """

    def check(
        model: torch.nn.Module,
        make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer],
        batches: list[Any],
        *,
        loss: Callable[[Any, Any], torch.Tensor] | None = None,
        clip_grad_norm: float | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        tolerance: float = 1e-9,
        **options: Any,
    ) -> Capture:
        eager = copy.deepcopy(model)
        eager_optimizer = make_optimizer(eager)
        eager_scheduler = scheduler(eager_optimizer) if scheduler else None
        optimizer = make_optimizer(model)
        before = pytree.tree_map(_printed, (model.__dict__, optimizer.__dict__))
        capture = capture_step(
            model, optimizer, batches[0], loss=loss, clip_grad_norm=clip_grad_norm, **options
        )
        assert pytree.tree_map(_printed, (model.__dict__, optimizer.__dict__)) == before
        program = Program(capture, optimizer)
        traced_scheduler = scheduler(optimizer) if scheduler else None
        for batch in batches:
            expected = eager_step(eager, eager_optimizer, batch, loss, clip_grad_norm)
            torch.testing.assert_close(program.step(batch), expected, rtol=tolerance, atol=tolerance)
            for each in (eager_scheduler, traced_scheduler):
                if each is not None:
                    each.step()
        _compare_state(program, eager, eager_optimizer, tolerance)
        assert capture.module.operation.verify()
        return capture

    return check


def _printed(leaf: Any) -> Any:
    return (id(leaf), leaf._version) if isinstance(leaf, torch.Tensor) else repr(leaf)[:200]


def _compare_state(
    program: Program, eager: torch.nn.Module, optimizer: torch.optim.Optimizer, tolerance: float
) -> None:
    expected: dict[tuple[str, str], torch.Tensor] = {}
    for name, param in eager.named_parameters():
        expected["param", name] = param.detach()
        for key, value in optimizer.state.get(param, {}).items():
            if isinstance(value, torch.Tensor):
                expected["opt_state", f"{name}/{key}"] = value
    expected |= {("buffer", name): buffer for name, buffer in eager.named_buffers()}
    assert program.values.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            program.values[key], value, rtol=tolerance, atol=tolerance, msg=lambda m, key=key: f"{key}: {m}"
        )
