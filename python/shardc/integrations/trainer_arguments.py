"""``TrainingArguments`` that a compiled step honours; all others are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from transformers import TrainingArguments

from shardc.diagnostics.integrations import TrainerArgumentRefused
from shardc.options.presets import PRESETS, plan_terms
from shardc.options.step import StepOptions

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop")
"""Values of ``TrainingArguments.optim`` that are optimizers of ``torch.optim``."""


class Refused(NamedTuple):
    """An argument that must keep its default, the reason, and the alternative."""

    argument: str
    default: object
    reason: str
    instead: str


_NO_DDP = ("there is no DistributedDataParallel: the step has its own collectives", "leave it out")
REFUSED = (
    Refused(
        "deepspeed", None, "shardc shards the step itself", "shard={'plan': 'zero1'}, 'zero2' or 'zero3'"
    ),
    Refused("fsdp", None, "shardc shards the step itself", "shard={'plan': 'zero3'} is FSDP's sharding"),
    Refused("parallelism_config", None, "shardc shards the step itself", "shard={'mesh': ..., 'plan': ...}"),
    Refused("fp16", False, "a compiled step does not scale losses", "bf16=True"),
    Refused("torch_compile", False, "the whole step is compiled already", "leave it out"),
    Refused("use_liger_kernel", False, "the step has kernels of its own", "leave it out"),
    Refused("neftune_noise_alpha", None, "its noise does not follow the step's seed", "leave it out"),
    Refused(
        "auto_find_batch_size",
        False,
        "a step is compiled for one batch size",
        "per_device_train_batch_size; ShardedTrainer.step.peak says what one takes",
    ),
    Refused("fp16_full_eval", False, "evaluation runs in the step's precision", "bf16=True"),
    Refused("bf16_full_eval", False, "evaluation runs in the step's precision", "bf16=True"),
    Refused("torch_empty_cache_steps", None, "a step's memory is planned as a whole", "leave it out"),
    Refused("ddp_find_unused_parameters", None, *_NO_DDP),
    Refused("ddp_bucket_cap_mb", None, *_NO_DDP),
    Refused("ddp_broadcast_buffers", None, *_NO_DDP),
    Refused("ddp_static_graph", None, *_NO_DDP),
    Refused(
        "include_num_input_tokens_seen",
        "no",
        "all ranks read the global batch, and Trainer would count it once per rank",
        "leave it out",
    ),
)
ACCELERATOR = (
    Refused("split_batches", False, "all ranks read the global batch", "per_device_train_batch_size"),
    Refused("dispatch_batches", None, "all ranks read the global batch", "a dataset with a length"),
)


def check_arguments(args: TrainingArguments, where: str) -> None:
    """Raise TrainerArgumentRefused for an argument that is not honoured. ``where``: the user's line."""
    for held, table in ((args, REFUSED), (args.accelerator_config, ACCELERATOR)):
        for argument, default, reason, instead in table:
            value = getattr(held, argument, default)
            if value != default and value not in (None, False):
                _refuse(argument, value, reason, instead, where)
    if (optim := str(getattr(args.optim, "value", args.optim))) not in OPTIMIZERS:
        instead = f"one of {', '.join(OPTIMIZERS)}, or optimizers=(one of torch.optim, a scheduler)"
        _refuse("optim", optim, "it is not an optimizer of torch.optim", instead, where)
    if args.train_sampling_strategy == "batch_rebalance":
        reason = "it gives each rank batches of its own"
        _refuse("train_sampling_strategy", "batch_rebalance", reason, "'random' or 'sequential'", where)


def check_given(given: Mapping[str, object], where: str) -> None:
    """Check the other arguments of a Trainer, by name. Raises TrainerArgumentRefused."""
    if given.get("model_init") is not None:
        _refuse("model_init", given["model_init"], "a step is compiled for one model", "model=", where)
    if given.get("optimizer_cls_and_kwargs") is not None:
        value = given["optimizer_cls_and_kwargs"]
        _refuse(
            "optimizer_cls_and_kwargs", value, "the step needs the optimizer itself", "optimizers=", where
        )


def data_size(options: StepOptions) -> int:
    """Return the number of parts of a global batch: the product of the axes that shard it."""
    mesh, plan = options.parallelism.mesh, options.parallelism.plan
    if isinstance(plan, str) and options.parallelism.plan_path is None:
        axes = [axis for preset, axis in plan_terms(plan, mesh) if PRESETS[preset] is PRESETS["data"]]
    else:
        axes = [axis for axis in mesh if axis in PRESETS["data"]]
    return prod(mesh[axis] for axis in axes)


def _refuse(argument: str, value: object, reason: str, instead: str, where: str) -> None:
    raise TrainerArgumentRefused(
        argument=argument, value=value, reason=reason, instead=f"use {instead}", where=where
    )
