"""What the kernels of ``torch.compile``'s graphs are made for."""

from __future__ import annotations

import torch

from shardc.backends import registry
from shardc.backends.base import Target
from shardc.compiler.warn_once import warn_once
from shardc.dynamo.settings import Settings


def graph_target(settings: Settings, device: torch.device) -> Target | None:
    """The target of a graph whose tensors are on ``device``, None where it has no kernels: the one that was
    asked for, if it runs there, and a warning says so if not, else the device's own.

    Raises UnknownTarget.
    """
    if not settings.kernels.fuse:
        return None
    if settings.kernels.target is None:
        return registry.target_for(device)
    target = registry.find_target(settings.kernels.target)
    if target.takes(device):
        return target
    warn_once(f"kernels for {target.name} do not run on {device}: its ops run through ATen")
    return None
