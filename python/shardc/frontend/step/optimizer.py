"""Runs a real ``torch.optim`` optimizer on traced tensors: its state's layout, its inputs, and its step.

During a step the optimizer object has other param groups and another state; afterwards its own are restored.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Node, Proxy

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import OptimizerParameterUnknown, OptimizerStateUnknown, OptimizerUnsupported
from shardc.frontend.step.alike import AlikeUpdates, updates_alone
from shardc.frontend.step.initial_state import initial_fill
from shardc.frontend.step.model_state import has_storage
from shardc.frontend.step.overrides.compiling import compiling
from shardc.frontend.step.scheduled import ScheduledArguments, ScheduledFloat
from shardc.frontend.step.spec import Hyperparameter
from shardc.frontend.step.traced_tensor import current_stand_ins
from shardc.runtime.torch_private import DataDependentOutputException, FakeTensorMode

Tensors = Mapping[str, torch.Tensor]
Nodes = Mapping[str, Node]
Made = dict[str, torch.Tensor | Proxy]
Gradients = Mapping[str, torch.Tensor | None]

# Options of the execution, not of the mathematics: overridden for the trace.
EXECUTION = {"foreach": False, "fused": False, "capturable": True}
NEVER_BAKED = {"params", "differentiable", *EXECUTION}
# Ints under these keys are numbers that happen to be whole. Other ints are counts, over which Python loops.
NUMBERS = {"lr", "momentum", "weight_decay", "dampening"}
# Read by ops that take Python numbers only; no scheduler changes them.
CONSTANTS = {"eps", "ns_coefficients"}

# Traced Adam divides by the learning rate, and 0 / 0 is NaN, while warm-ups start at 0. With this minimum
# rate parameters do not change, except that a zero may become a number of this size.
LEAST_RATE = 1e-36


@dataclass(frozen=True)
class StateSlot:
    """One tensor of optimizer state. ``fill``: its initial value if the optimizer has no tensor yet."""

    param: str
    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    fill: float | None
    value: torch.Tensor | None

    @property
    def name(self) -> str:
        return f"{self.param}/{self.key}"


class TracedOptimizer:
    """An optimizer, accessed by the canonical names of the model's parameters."""

    def __init__(self, optimizer: torch.optim.Optimizer, params: Mapping[str, torch.nn.Parameter]) -> None:
        self.optimizer = optimizer
        self.kind = type(optimizer).__name__
        self.groups = self._named_groups(params)
        self.names = [name for group in self.groups for name in group]
        self.slots: list[StateSlot] = []
        self._static: dict[str, dict[str, object]] = {name: {} for name in self.names}
        self._params = params
        self._layout()
        self._slots_of: dict[str, list[StateSlot]] = {name: [] for name in self.names}
        for slot in self.slots:
            self._slots_of[slot.param].append(slot)
        self.hyperparameters = self._hyperparameters()

    def hyper_tensors(self) -> list[torch.Tensor]:
        """Return a 0-d f64 tensor per hyperparameter; the learning rate is f32 unless a parameter is f64."""
        wide = any(self._params[name].dtype.to_real() == torch.float64 for name in self.names)
        dtypes = {"lr": torch.float64 if wide else torch.float32}
        return [torch.empty((), dtype=dtypes.get(h.key, torch.float64)) for h in self.hyperparameters]

    def step(self, params: Nodes, grads: Gradients, state: Nodes, hyper: Tensors) -> tuple[Made, Made]:
        """Return new parameters and new state, by slot name, after one ``optimizer.step()`` on these tensors.

        ``params`` and ``state`` are placeholders. Results of copied updates are proxies.
        """
        groups = self._traced_groups(hyper)
        if not updates_alone(self.optimizer):
            new, stepped = self._stepped(groups, self.groups, params, grads, state)
            return {**new}, {**stepped}
        alike = AlikeUpdates(lambda: [*hyper.values(), *_tensors(groups)])
        made: tuple[Made, Made] = ({}, {})
        new, stepped = made
        for index, (group, names) in enumerate(zip(groups, self.groups, strict=True)):
            for name in names:
                slots = self._slots_of[name]
                kind = (index, repr(self._static[name]), *(slot.key for slot in slots))
                own = [params[name], grads[name], *(state[slot.name] for slot in slots)]
                update = partial(self._updated, group, name, params, grads, state)
                new[name], *after = alike.run(kind, own, update)
                stepped.update((slot.name, tensor) for slot, tensor in zip(slots, after, strict=True))
        return made

    def _updated(
        self,
        group: dict[str, Any],
        name: str,
        params: Nodes,
        grads: Gradients,
        state: Nodes,
    ) -> list[torch.Tensor]:
        """Return one parameter and its state after a step of its group with this parameter alone."""
        new, stepped = self._stepped([group], [[name]], params, grads, state)
        return [new[name], *(stepped[slot.name] for slot in self._slots_of[name])]

    def _stepped(
        self,
        groups: Sequence[dict[str, Any]],
        members: Sequence[Sequence[str]],
        params: Nodes,
        grads: Gradients,
        state: Nodes,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Run a step of these groups with these parameters."""
        names = [name for group in members for name in group]
        read = current_stand_ins([params[name] for name in names])
        new = {name: tensor.clone() for name, tensor in zip(names, read, strict=True)}
        for name, tensor in new.items():
            tensor.grad = grads[name]
        held = {new[name]: dict(self._static[name]) for name in names}
        slots = [slot for name in names for slot in self._slots_of[name]]
        for slot, tensor in zip(slots, current_stand_ins([state[slot.name] for slot in slots]), strict=True):
            held[new[slot.param]][slot.key] = tensor.clone()
        lent = [{**g, "params": [new[n] for n in own]} for g, own in zip(groups, members, strict=True)]
        with _lent(self.optimizer, lent, held), ScheduledArguments():
            self._run()
            stepped = self.optimizer.state
            self._check_static(new, stepped)
            return new, {slot.name: stepped[new[slot.param]][slot.key] for slot in slots}

    def baked(self, used: set[str]) -> dict[tuple[int, str], object]:
        """Return the group settings that are constants of the traced step; ``used``: inputs that it reads."""
        inputs = {(hyper.group, hyper.key) for hyper in self.hyperparameters if hyper.name in used}
        return {
            (index, key): value
            for index, group in enumerate(self.optimizer.param_groups)
            for key, value in group.items()
            if key in self.optimizer.defaults and key not in NEVER_BAKED and (index, key) not in inputs
        }

    def _named_groups(self, params: Mapping[str, torch.nn.Parameter]) -> list[list[str]]:
        names = {id(param): name for name, param in params.items()}
        for index, group in enumerate(self.optimizer.param_groups):
            for position, param in enumerate(group["params"]):
                if id(param) not in names:
                    what = {"index": position, "group": index, "shape": list(param.shape)}
                    raise OptimizerParameterUnknown(**what, optimizer=self.kind, where="optimizer")
        return [[names[id(param)] for param in group["params"]] for group in self.optimizer.param_groups]

    def _layout(self) -> None:
        """Find tensors and constants in each parameter's state, by a step on fake tensors."""
        fresh = [n for n in self.names if not self.optimizer.state.get(self._params[n])]
        stepped = self._fake_states(fresh) if fresh else {}
        for index, group in enumerate(self.groups):
            for name in group:
                held = stepped.get(name) or self.optimizer.state.get(self._params[name]) or {}
                for key, value in held.items():
                    self._add_state(index, name, key, value, known=name not in stepped)

    def _add_state(self, group: int, name: str, key: str, value: object, *, known: bool) -> None:
        if not isinstance(value, torch.Tensor):
            self._static[name][key] = value
            return
        held = value if known and has_storage(value) else None
        fill = None if held is not None else initial_fill(self.optimizer, group, key)
        if fill and value.is_complex():  # torch fills both parts with the number
            fill = None
        if held is None and fill is None:
            raise OptimizerStateUnknown(optimizer=self.kind, state=key, where=f"optimizer, {name}")
        self.slots.append(StateSlot(name, key, tuple(value.shape), value.dtype, fill, held))

    def _fake_states(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Return each parameter's state after a step on fake tensors; of equal parameters one is stepped."""
        numbers = [_numbers(group) for group in self.optimizer.param_groups]
        first = self._first_alike(names)
        with FakeTensorMode(allow_non_fake_inputs=True), compiling():
            params = {
                n: torch.empty(p.shape, dtype=p.dtype) for n, p in self._params.items() if first.get(n) == n
            }
            for name, param in params.items():
                param.grad = torch.empty_like(param) if self._params[name].requires_grad else None
            own = [[params[n] for n in members if n in params] for members in self.groups]
            groups = [{**group, "params": held} for group, held in zip(numbers, own, strict=True)]
            with _lent(self.optimizer, groups, {}):
                self._run()
                found = {name: dict(self.optimizer.state.get(param, {})) for name, param in params.items()}
        return {name: found[first[name]] for name in names}

    def _first_alike(self, names: Sequence[str]) -> dict[str, str]:
        """Map each parameter to the first with the same state layout."""
        first: dict[object, str] = {}
        alone, wanted, found = updates_alone(self.optimizer), set(names), {}
        for index, members in enumerate(self.groups):
            for name in (name for name in members if name in wanted):
                param = self._params[name]
                kind = (index, param.shape, param.dtype, param.requires_grad) if alone else name
                found[name] = first.setdefault(kind, name)
        return found

    def _hyperparameters(self) -> list[Hyperparameter]:
        found = []
        for index, group in enumerate(self.optimizer.param_groups):
            for key, value in group.items():
                if key in NEVER_BAKED or key in CONSTANTS or key not in self.optimizer.defaults:
                    continue
                first = 0.0 if key == "dampening" and self._starts_without_momentum(group) else None
                if _is_number(key, value):
                    found.append(Hyperparameter(f"group{index}.{key}", index, key, None, first))
                elif isinstance(value, tuple) and value and all(_is_number(key, item) for item in value):
                    names = [f"group{index}.{key}.{i}" for i in range(len(value))]
                    found += [Hyperparameter(name, index, key, i) for i, name in enumerate(names)]
        return found

    def _starts_without_momentum(self, group: dict[str, Any]) -> bool:
        """Return whether SGD's momentum buffer is empty, so that the first gradient enters it undamped."""
        empty = not any("momentum_buffer" in self.optimizer.state.get(p, {}) for p in group["params"])
        return isinstance(self.optimizer, torch.optim.SGD) and empty

    def _traced_groups(self, hyper: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
        """Return the groups without parameters, with the step's inputs as numbers."""
        groups = [{**group, "params": [], **_execution(group)} for group in self.optimizer.param_groups]
        for item in self.hyperparameters:
            group, tensor = groups[item.group], hyper[item.name]
            held = group[item.key]
            if item.key == "lr" and isinstance(self.optimizer, torch.optim.Adam):
                tensor = tensor.clamp(min=LEAST_RATE)
            if item.index is not None:
                scheduled = ScheduledFloat(float(held[item.index]), tensor)
                group[item.key] = (*held[: item.index], scheduled, *held[item.index + 1 :])
            elif isinstance(held, torch.Tensor):
                group[item.key] = tensor
            else:
                group[item.key] = ScheduledFloat(float(held), tensor)
        return groups

    def _run(self) -> None:
        # Call the class's step: schedulers wrap the instance's to count calls.
        try:
            type(self.optimizer).step(self.optimizer)
        except ShardcError:
            raise
        except Exception as error:
            read = isinstance(error, DataDependentOutputException)
            text = (str(error).splitlines() or [type(error).__name__])[0]
            reason = "it reads the value of a tensor" if read else text
            raise OptimizerUnsupported(optimizer=self.kind, reason=reason, where="optimizer") from error

    def _check_static(self, new: Mapping[str, torch.Tensor], stepped: Mapping[torch.Tensor, dict]) -> None:
        for name, parameter in new.items():
            tensors = {slot.key for slot in self._slots_of[name]}
            for key, value in stepped.get(parameter, {}).items():
                if key not in tensors and value != self._static[name].get(key):
                    raise OptimizerStateUnknown(optimizer=self.kind, state=key, where=f"optimizer, {name}")


def _tensors(groups: Sequence[Mapping[str, object]]) -> list[torch.Tensor]:
    """Return the tensors that represent numbers of the groups."""
    held = [value for group in groups for key, value in group.items() if key != "params"]
    flat = [item for value in held for item in (value if isinstance(value, tuple) else (value,))]
    scheduled = [tensor for item in flat if isinstance(item, ScheduledFloat) for tensor in item.tensors()]
    return [*scheduled, *(item for item in flat if isinstance(item, torch.Tensor))]


def _execution(group: Mapping[str, object]) -> dict[str, bool]:
    return {key: value for key, value in EXECUTION.items() if key in group}


def _numbers(group: Mapping[str, Any]) -> dict[str, object]:
    """Return the group for a step that only creates state, with numbers for tensors.

    ``fused`` stays, since the dtype of the step count depends on it.
    """
    numbers = {k: float(v) if isinstance(v, torch.Tensor) and v.numel() == 1 else v for k, v in group.items()}
    return {**numbers, **{key: value for key, value in _execution(group).items() if key != "fused"}}


def _is_number(key: str, value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, float) or (key in NUMBERS and type(value) is int)


@contextmanager
def _lent(optimizer: torch.optim.Optimizer, groups: list[dict], state: Mapping) -> Iterator[None]:
    saved = dict(optimizer.__dict__)
    optimizer.param_groups = groups
    optimizer.state = collections.defaultdict(dict, state)
    try:
        yield
    finally:
        optimizer.__dict__.clear()
        optimizer.__dict__.update(saved)
