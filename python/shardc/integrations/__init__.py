"""Integrations with trainers of other packages, imported when a name is first used.

Raises PackageMissing if the package is not installed or older than the oldest tested version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shardc.integrations.packages import require

if TYPE_CHECKING:
    from shardc.integrations.lightning_strategy import ShardcStrategy
    from shardc.integrations.torchtitan_plan import torchtitan_layout
    from shardc.integrations.transformers_trainer import ShardedTrainer

__all__ = ["ShardcStrategy", "ShardedTrainer", "torchtitan_layout"]

_LAZY = {
    "ShardcStrategy": ("lightning_strategy", (("lightning", "2.6"),)),
    "ShardedTrainer": ("transformers_trainer", (("transformers", "5.20"), ("accelerate", "1.10"))),
    "torchtitan_layout": ("torchtitan_plan", (("torchtitan", "0.3"), ("spmd_types", "0.2"), ("tyro", "1"))),
}
"""Public names, each with its module and the packages and versions that it needs."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'shardc.integrations' has no attribute {name!r}")
    module, packages = _LAZY[name]
    for package, oldest in packages:
        require(name, package, oldest)
    return getattr(import_module(f"shardc.integrations.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
