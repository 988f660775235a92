"""Result of a capture: the level-1 module, and the names, roles and values of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch_mlir import ir

from shardc.runtime.torch_private import pytree

ARGUMENT_ROLES = ("param", "opt_state", "buffer", "hyper", "input", "seed", "constant")
RESULT_ROLES = ("loss", "output", "param", "opt_state", "buffer")


@dataclass(frozen=True)
class TensorSpec:
    """One argument or result of the step: name, role, global shape and dtype."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Hyperparameter:
    """A number of a param group that the step reads as an input, so that a scheduler may change it.

    ``key`` is the key in ``optimizer.param_groups[group]``; ``index`` is the place in the value if that is a
    tuple (``betas``). If ``first_step`` is set, the first step of an optimizer without state uses it instead
    of the group's value (SGD's dampening does not apply to the first gradient).
    """

    name: str
    group: int
    key: str
    index: int | None = None
    first_step: float | None = None

    def value(self, optimizer: torch.optim.Optimizer) -> float:
        """Return the number that the optimizer's group holds now."""
        held = optimizer.param_groups[self.group][self.key]
        return float(held if self.index is None else held[self.index])


@dataclass(frozen=True)
class BatchTree:
    """Conversion between a batch and a list of tensors.

    ``constants`` maps a leaf's position in the tree to its value (None, a number, a string). All other leaves
    are tensors, in the order of the names. ``like`` is the example batch, for its containers' types.
    """

    spec: pytree.TreeSpec
    names: tuple[str, ...]
    constants: dict[int, object]
    like: object = None


@dataclass
class Capture:
    """A traced training step. ``module`` holds one ``func.func @step`` at level 1.

    Attributes:
        graph: FX graph that the module was imported from, with the same arguments and results; it can run.
        gradients: For each parameter, the name of the FX node of its final gradient, before clipping.
        baked: Settings of param groups that are constants of the program: ``{(group, key): value}``.
        tied: Maps other names of a tied parameter or buffer to the name used here.
        written: Attributes that the forward sets on modules, by the module's path and the name.
        noted: Modules whose calls are recorded on ops.
        trace_s, import_s: Seconds.
    """

    module: ir.Module
    graph: torch.fx.GraphModule
    arguments: list[TensorSpec]
    results: list[TensorSpec]
    batch_tree: BatchTree
    constants: dict[str, torch.Tensor]
    hyperparameters: list[Hyperparameter]
    baked: dict[tuple[int, str], object]
    tied: dict[str, str]
    gradients: dict[str, str]
    written: list[tuple[str, str]] = field(default_factory=list)
    trace_s: float = 0.0
    import_s: float = 0.0
    noted: Sequence[str] = ()
    _values: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict, repr=False)
    _fills: dict[str, float] = field(default_factory=dict, repr=False)

    def with_role(self, role: str) -> list[TensorSpec]:
        """Return the arguments of one role, in order."""
        return [spec for spec in self.arguments if spec.role == role]

    def fill_value(self, name: str) -> float | None:
        """Return the initial value of all elements of this optimizer state; None if it has values."""
        return self._fills.get(name)

    def initial_values(self) -> dict[tuple[str, str], torch.Tensor | None]:
        """Return initial values by role and name, for params, optimizer state and buffers.

        Tensors are the model's own, not copies. None stands for a tensor without storage (a model on the meta
        device, or fake). Optimizer state that does not exist yet is created here.
        """
        stored = [spec for role in ("param", "opt_state", "buffer") for spec in self.with_role(role)]
        return {(spec.role, spec.name): self._initial_value(spec) for spec in stored}

    def _initial_value(self, spec: TensorSpec) -> torch.Tensor | None:
        value = self._values.get((spec.role, spec.name))
        if value is not None or spec.role != "opt_state" or spec.name not in self._fills:
            return value
        parameter = self._values.get(("param", spec.name.rpartition("/")[0]))
        if parameter is None:
            return None
        return torch.full(spec.shape, self._fills[spec.name], dtype=spec.dtype, device=parameter.device)
