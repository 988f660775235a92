"""Hugging Face's ``Trainer`` with a step that is compiled for a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.data_loader import BatchSamplerShard
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, IterableDataset
from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import find_batch_size

from shardc.diagnostics.integrations import CheckpointOfAnother, TrainerArgumentRefused
from shardc.frontend.importing.recorder import caller_line
from shardc.integrations.global_batch import joined
from shardc.integrations.trainer_arguments import check_arguments, check_given, data_size
from shardc.integrations.trainer_evaluation import ShardedForward, numbers_of
from shardc.integrations.trainer_loss import Losses, loss_of
from shardc.options.step import StepOptions
from shardc.runtime.outputs import StepResult
from shardc.runtime.torch_private import pytree
from shardc.step.compile_step import CompiledStep, compile_with
from shardc.step.hugging_face import export_weights
from shardc.step.other_shapes import bucketed

GRAD_NORM = "grad_norm"
"""Output of the step that ``Trainer`` logs under this name."""
STATE = "shardc"
"""Folder inside a Trainer's checkpoint that holds the step's checkpoint."""


class ShardedTrainer(Trainer):
    """A ``Trainer`` whose training step is compiled by shardc and runs on a mesh, under ``torchrun``.

    The global batch has ``per_device_train_batch_size`` rows for each part into which the plan splits a batch
    (2 parts on a mesh ``{"data": 2, "tensor": 2}``), times ``gradient_accumulation_steps``. All ranks read
    all of it. Losses, schedule, logs and checkpoints equal those of ``Trainer`` on one process with that
    batch, also if an epoch's last batch is smaller. Evaluation runs on the sharded weights; whole logits are
    gathered only if ``compute_metrics`` or ``predict`` needs them.

    Args:
        shard: Options of ``compile_step`` by name: ``{"mesh": {"data": 2}, "plan": "zero3"}``.
            ``autocast``, ``clip_grad_norm``, ``micro_batches`` and ``seed`` default to those of ``args``.
            Scalar ``outputs`` are logged beside the loss.
        args, given: Arguments of ``Trainer``.

    Raises:
        TrainerArgumentRefused: an argument cannot be honoured.

    Example:
        >>> ShardedTrainer(model=model, args=args, train_dataset=rows,
        ...                shard={"mesh": {"data": 2}, "plan": "zero3"}).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        shard: Mapping[str, object],
        args: TrainingArguments | None = None,
        **given: Any,
    ) -> None:
        where = _line()
        args = TrainingArguments("tmp_trainer") if args is None else args
        check_arguments(args, where)
        check_given(given, where)
        self._where = where
        self._options = _with_norm(StepOptions.of({**_from(args), **shard}))
        self._step: CompiledStep | None = None
        self._numbers: dict[str, float] = {}
        self._rows: int | None = None
        self._micro_batches: list[Mapping[str, Any]] = []
        self._resume_from: Path | None = None
        super().__init__(model=model, args=args, **given)
        if type(self).compute_loss is not Trainer.compute_loss:
            raise TrainerArgumentRefused(
                argument="compute_loss",
                value=type(self).__name__,
                reason="the loss is a part of the compiled step",
                instead="pass compute_loss_func=f, called as f(outputs, labels, num_items_in_batch)",
                where=where,
            )

    @property
    def step(self) -> CompiledStep | None:
        """Return the compiled step; None before the first update."""
        return self._step

    # Batches: all ranks read the global batch.

    def _get_dataloader(self, dataset: Dataset, description: str, batch_size: int, *args: Any, **kwargs: Any):
        if isinstance(dataset, IterableDataset):
            raise TrainerArgumentRefused(
                argument=f"{description.lower()} dataset",
                value=type(dataset).__name__,
                reason="Trainer would split an iterable dataset between ranks",
                instead="use a dataset with a length",
                where=self._where,
            )
        whole = batch_size * data_size(self._options)
        loader = super()._get_dataloader(dataset, description, whole, *args, **kwargs)
        shard = loader.batch_sampler
        if isinstance(shard, BatchSamplerShard):
            shard.num_processes, shard.process_index, shard.even_batches = 1, 0, False
        return loader

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Return the number of rows of one update."""
        return args.train_batch_size * args.gradient_accumulation_steps * data_size(self._options)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device):
        """Return the micro-batches of an update. The step counts their items itself."""
        return [*islice(epoch_iterator, num_batches)], None

    # The step.

    @property
    def _whole(self) -> nn.Module:
        """Return the user's model."""
        return cast(nn.Module, self.model)

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: DataLoader | None = None):  # pyright: ignore[reportIncompatibleMethodOverride]
        if training:
            return _Unwrapped(self._whole)
        return self._whole if self._step is None else ShardedForward(self._step, self._whole)

    def training_step(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: object = None
    ) -> Tensor:
        """Collect a micro-batch; at the last one of an update, run the step and return its 0-d loss."""
        self._micro_batches.append(self._prepare_inputs(dict(inputs)))
        if not self.accelerator.sync_gradients:
            return torch.zeros((), device=self.args.device)
        batch, self._micro_batches = joined(self._micro_batches), []
        if self._step is None:
            self._compile(batch)
        assert self._step is not None
        found = self._step(batch)
        loss, outputs = found if isinstance(found, StepResult) else (found, {})
        self._numbers = numbers_of(outputs)
        return loss.detach().float()

    def _compile(self, batch: Mapping[str, Any]) -> None:
        assert self.optimizer is not None
        model = self._whole.train()
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        loss = loss_of(cast(Losses, self))
        batch = cast(Mapping[str, Any], bucketed(batch, self._options.shapes.bucket))
        self._step = compile_with(model, cast(Optimizer, optimizer), batch, self._options, loss)
        if self._resume_from is not None:
            objects = {"scheduler": self.lr_scheduler}
            self._step.load_checkpoint(self._resume_from, objects=objects)
            self._resume_from = None

    def _clip_grad_norm(self, model: nn.Module) -> None:
        """Do nothing, since the step clips gradients itself."""

    def _get_grad_norm(self, model: nn.Module, grad_norm: float | None = None) -> float | None:
        """Return the norm that the step returned."""
        return self._numbers.get(GRAD_NORM)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as ``Trainer`` does, with the step's scalar outputs beside a loss."""
        more = self._numbers if "loss" in logs else {}
        super().log({**more, **logs}, start_time)

    # Evaluation: programs on the step's current weights; before the first update, the model itself.

    def evaluation_loop(self, *args: Any, **kwargs: Any):
        """Evaluate as ``Trainer`` does on one process: each rank has all rows, so none are gathered."""
        self.gather_function = self._own_rows  # Trainer restores its own after each loop
        part = self.args.per_device_eval_batch_size
        self.args.per_device_eval_batch_size = part * data_size(self._options)
        try:
            return super().evaluation_loop(*args, **kwargs)
        finally:
            self.args.per_device_eval_batch_size = part

    def _own_rows(self, value: Any, *_: object, **__: object) -> Any:
        """Return as many rows as the batch has, since a loss is repeated for each row of a full batch."""
        return pytree.tree_map(lambda t: t[: self._rows] if isinstance(t, Tensor) and t.dim() else t, value)

    def prediction_step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, *args: Any, **kwargs: Any
    ):
        """Predict as ``Trainer`` does; if only the loss is needed, by ``step.evaluate``."""
        self._rows = find_batch_size(inputs)
        labels = [inputs.get(name) for name in self.label_names]
        if self._step is not None and prediction_loss_only and labels and None not in labels:
            found = self._step.evaluate(self._prepare_inputs(inputs))
            return (found.loss if isinstance(found, StepResult) else found), None, None
        with torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.args.bf16):
            return super().prediction_step(model, inputs, prediction_loss_only, *args, **kwargs)

    # Checkpoints: weights in the form of from_pretrained, and the step's own state.

    def _save(self, output_dir: str | None = None, state_dict: Mapping[str, Tensor] | None = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        if self._step is None:
            super()._save(str(folder), dict(state_dict) if state_dict is not None else None)
            return
        export_weights(self._step, self._whole, folder)
        if self.args.should_save:
            for writer in (self.processing_class, getattr(self.model, "generation_config", None)):
                if writer is not None:
                    writer.save_pretrained(folder)
            torch.save(self.args, folder / "training_args.bin")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        assert self._step is not None
        self._step.save_checkpoint(Path(output_dir) / STATE, objects={"scheduler": self.lr_scheduler})

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        self._resume_from = folder = self._state_in(checkpoint)
        if self._step is not None:
            self._step.load_checkpoint(folder, objects={"scheduler": self.lr_scheduler})
            self._resume_from = None

    def _load_best_model(self) -> None:
        assert self._step is not None
        folder = self._state_in(str(self.state.best_model_checkpoint))
        self._step.load_checkpoint(folder, objects={"scheduler": self.lr_scheduler})

    def _state_in(self, checkpoint: str) -> Path:
        """Return the step's folder in a checkpoint of a ``Trainer``. Raises CheckpointOfAnother."""
        folder = Path(checkpoint) / STATE
        if not folder.is_dir():
            raise CheckpointOfAnother(folder=checkpoint, part=f"folder {STATE}", where=self._where)
        return folder


class _Unwrapped(nn.Module):
    """Wrapper that ``Trainer`` trains in place of a DistributedDataParallel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = model


def _from(args: TrainingArguments) -> dict[str, object]:
    """Return the step's options that follow from a Trainer's arguments."""
    return {
        "seed": args.seed,
        "micro_batches": args.gradient_accumulation_steps,
        "clip_grad_norm": args.max_grad_norm or None,
        "autocast": torch.bfloat16 if args.bf16 else None,
    }


def _with_norm(options: StepOptions) -> StepOptions:
    """Return the options with the gradient norm added to the outputs."""
    wanted = {GRAD_NORM: GRAD_NORM, **(options.results.outputs or {})}
    return replace(options, results=replace(options.results, outputs=wanted))


def _line() -> str:
    ((file, line), *_) = caller_line()
    return f"{file}:{line}"
