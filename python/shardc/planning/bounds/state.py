"""Lower bound of a plan's parameters and optimizer state, evenly over devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from shardc.diagnostics.base import ShardcError
from shardc.frontend.step.spec import TensorSpec
from shardc.options.presets import plan_terms
from shardc.planning.candidates import Candidate

WHOLE_STATE = ("data",)
"""Presets along whose axis each device holds all of the optimizer's state."""
WHOLE_PARAMETERS = (*WHOLE_STATE, "zero1", "zero2")
"""Presets along whose axis each device holds all parameters."""


@dataclass(frozen=True)
class LeastState:
    """Bytes of a model's parameters, and the least of its optimizer's state."""

    parameter_bytes: float
    state_bytes: float

    @classmethod
    def of(cls, arguments: Sequence[TensorSpec], parameter_bytes: float) -> LeastState:
        """Return those of a model with ``parameter_bytes``, from the arguments of a step with fewer layers.

        Each parameter is taken to have as little state for a byte as the one that has the least.
        """
        sizes = {a.name: _size_bytes(a) for a in arguments if a.role == "param"}
        states = dict.fromkeys(sizes, 0)
        for argument in arguments:
            owner = argument.name.rpartition("/")[0]
            if argument.role == "opt_state" and owner in states:
                states[owner] += _size_bytes(argument)
        least = min((states[name] / size for name, size in sizes.items() if size), default=0.0)
        return cls(parameter_bytes, least * parameter_bytes)

    def on_device(self, candidate: Candidate) -> float:
        """Return the least bytes on the fullest device of a plan.

        Plans that are no products of presets are taken to share all tensors among all devices.
        """
        presets = presets_of(candidate)
        return self.parameter_bytes / ways(candidate.mesh, presets, WHOLE_PARAMETERS) + (
            self.state_bytes / ways(candidate.mesh, presets, WHOLE_STATE)
        )


def presets_of(candidate: Candidate) -> Mapping[str, str]:
    """Return axis -> preset of a product of presets; empty for other plans."""
    try:
        return {axis: name for name, axis in plan_terms(candidate.plan, candidate.mesh)}
    except ShardcError:
        return {}


def ways(mesh: Mapping[str, int], presets: Mapping[str, str], whole: Sequence[str]) -> int:
    """Return among how many devices a tensor can be shared. Presets in ``whole`` share none."""
    return prod(size for axis, size in mesh.items() if presets.get(axis) not in whole)


def _size_bytes(argument: TensorSpec) -> int:
    return prod(argument.shape) * argument.dtype.itemsize
