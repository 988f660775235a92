"""Settings of Lightning that a compiled step honours; all others are refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.optim import Optimizer

from shardc.diagnostics.integrations import TrainerArgumentRefused
from shardc.options.step import StepOptions

HOOKS = (
    *("backward", "configure_gradient_clipping", "on_after_backward", "on_before_backward"),
    *("on_before_optimizer_step", "optimizer_step", "optimizer_zero_grad"),
)
"""Hooks that run inside a training step, which the compiled step runs as a whole."""
AUTOCAST = {"32-true": None, "bf16-mixed": "bfloat16"}


def check_module(
    trainer: Trainer, module: LightningModule, optimizers: Sequence[Optimizer], where: str
) -> None:
    """Raise TrainerArgumentRefused for a setting that is not honoured.

    ``where``: the line of the strategy. Hooks are reported with their own lines.
    """
    if not module.automatic_optimization:
        instead = "use automatic optimization, or shardc.compile_step in a loop of your own"
        _refuse("automatic_optimization", False, "the step runs as a whole", instead, _place(module))
    if len(optimizers) != 1:
        instead = "return one optimizer from configure_optimizers; it may have several parameter groups"
        _refuse("configure_optimizers", f"{len(optimizers)} optimizers", "a step has one", instead, where)
    for hook in HOOKS:
        if is_overridden(hook, module):
            reason = "it would run in the middle of the compiled step"
            _refuse(hook, type(module).__name__, reason, "leave it out", _place(getattr(module, hook)))
    if trainer.accumulate_grad_batches != 1:
        instead = "load the whole batch and pass micro_batches=N to ShardcStrategy"
        count = trainer.accumulate_grad_batches
        _refuse("accumulate_grad_batches", count, "the step accumulates by itself", instead, where)
    if trainer.gradient_clip_val and str(trainer.gradient_clip_algorithm).lower().endswith("value"):
        instead = "use gradient_clip_algorithm='norm'"
        _refuse("gradient_clip_algorithm", "value", "the step clips a norm", instead, where)
    if trainer.precision not in AUTOCAST:
        instead = f"use {' or '.join(AUTOCAST)}"
        _refuse("precision", trainer.precision, "the step does not scale losses or cast", instead, where)


def options_of(trainer: Trainer, options: StepOptions) -> StepOptions:
    """Return the options, with the ``Trainer``'s clipping and precision where the options set none."""
    given = options.numerics
    clip = given.clip_grad_norm or trainer.gradient_clip_val or None
    by = given.clip_parameters if given.clip_grad_norm else "optimizer"
    autocast = given.autocast or AUTOCAST[trainer.precision]
    return replace(
        options, numerics=replace(given, clip_grad_norm=clip, clip_parameters=by, autocast=autocast)
    )


def _place(of: object) -> str:
    """Return the line that defines the user's class or function."""
    code = of if inspect.ismethod(of) else type(of)
    return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"


def _refuse(argument: str, value: object, reason: str, instead: str, where: str) -> NoReturn:
    raise TrainerArgumentRefused(argument=argument, value=value, reason=reason, instead=instead, where=where)
