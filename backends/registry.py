"""Registry of targets. Each has a line here; its module is imported when first needed."""

from __future__ import annotations

from importlib import import_module

import torch

from shardc.backends.base import Target
from shardc.diagnostics.kernels import UnknownTarget
from shardc.options.targets import TARGETS
from shardc.runtime.comm.connect import own_device

BACKENDS: dict[str, str | type[Target]] = {
    "cpu": "shardc.backends.cpu.target:CpuTarget",
    "triton": "shardc.backends.triton.target:TritonTarget",
}
"""Backend -> its class, or ``module:ClassName``. Later entries have priority for devices."""


def register_target(backend: type[Target]) -> None:
    """Add the targets of an external backend. It has priority for devices."""
    BACKENDS.pop(backend.backend, None)
    BACKENDS[backend.backend] = backend
    TARGETS.update(dict.fromkeys(backend.names(), ""))


def backend_class(name: str) -> type[Target]:
    """Return the class of a backend. Raises KeyError."""
    found = BACKENDS[name]
    if not isinstance(found, str):
        return found
    module, _, class_name = found.partition(":")
    return getattr(import_module(module), class_name)


def find_target(name: str) -> Target:
    """Return the target of a name. Raises UnknownTarget, which lists the known names."""
    for backend in reversed(BACKENDS):
        found = backend_class(backend).named(name)
        if found is not None:
            return found
    raise UnknownTarget(target=name, known=", ".join(target_names()))


def known_target(described: str) -> Target | None:
    """Return the target of an artefact from its description; None if it is unknown."""
    try:
        return find_target(described)
    except UnknownTarget:
        return None


def local_target() -> Target:
    """Return the target of this process's device. Raises UnknownTarget if there is none."""
    device = own_device()
    found = target_for(device)
    if found is None:
        raise UnknownTarget(target=str(device), known=", ".join(target_names()))
    return found


def target_names() -> tuple[str, ...]:
    """Return the names of all targets."""
    return tuple(name for backend in reversed(BACKENDS) for name in backend_class(backend).names())


def target_for(device: torch.device) -> Target | None:
    """Return a device's target; None if there is none, with a warning if one could be expected."""
    found = (backend_class(backend).of_device(device) for backend in reversed(BACKENDS))
    return next((target for target in found if target is not None), None)
