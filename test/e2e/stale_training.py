"""Training with old weights in plain torch, which keeps every version by hand.

What each micro-batch must see is written down here from the papers, not taken from the compiler: with S
stages and one update a micro-batch (PipeDream), stage s runs micro-batch m on the weights that
``m - (S - 1 - s)`` updates left; with groups (PipeDream-2BW), group g on those that ``g - 1`` left, whatever
the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from models import Batch, Training, default_f64
from pipelines import PIPELINED
from torch import Tensor, nn
from torch.func import functional_call
from torch_mlir import ir
from training import Values, Wide, state_of

from shardc.backends.eager.pipeline import read_pipeline


@dataclass(frozen=True)
class Case:
    """A model as a pipeline; ``share`` is what a micro-batch adds to the batch's loss, given what the model
    returns.
    """

    model: str
    ranks: int
    micro_batches: int
    share: Callable[[Batch, Batch, object], Tensor]

    def every(self, schedule: str) -> int:
        """How many micro-batches there are to an update."""
        return 1 if schedule == "pipedream" else self.ranks

    def version(self, schedule: str, stage: int, micro_batch: int) -> int:
        """How many updates the weights that a micro-batch sees have behind them."""
        if schedule == "pipedream":
            return max(0, micro_batch - (self.ranks - 1 - stage))
        return max(0, micro_batch // self.ranks - 1)


def _of_labels(part: Batch, batch: Batch, output: object) -> Tensor:
    """The model gives the mean over the labels of a micro-batch that count, which is NaN of none."""
    assert isinstance(output, Tensor)
    counting, all_counting = ((labels != -100).sum() for _, labels in (part, batch))
    return output * (counting / all_counting) if counting else torch.zeros((), requires_grad=True)


def _of_tokens(part: Batch, batch: Batch, output: object) -> Tensor:
    return output.loss * len(part["labels"]) / len(batch["labels"])  # type: ignore[attr-defined]


def _of_images(part: Batch, batch: Batch, output: object) -> Tensor:
    loss = PIPELINED["unet"].loss
    assert loss is not None
    return loss(output, part) * len(part[0]) / len(batch[0])


SHARES = {"skips": _of_labels, "llama": _of_tokens, "unet": _of_images}
CASES = [
    Case(model, ranks, micro_batches, SHARES[model])
    for model, ranks, micro_batches in (
        ("skips", 2, 8),
        ("skips", 4, 8),
        ("llama", 2, 4),
        ("llama", 4, 8),
        ("unet", 2, 8),
    )
]


def stages_of_parameters(module: ir.Module) -> dict[str, int]:
    """Of a pipeline with a stage on each rank."""
    program = read_pipeline(module)
    assert program is not None
    return {p.name: rank for rank, ports in enumerate(program.arguments) for p in ports if p.role == "param"}


def stale_training(
    case: Case, schedule: str, stage: Mapping[str, int], steps: int, training: Training | None = None
) -> list[Values]:
    """Loss and state after each step. ``stage``: of each parameter. ``training``: that of ``PIPELINED`` if
    not given.
    """
    training = training or PIPELINED[case.model]
    model = training.fresh()
    optimizer = training.optimizer(model)
    made = []
    with default_f64(), Wide():
        for batch in training.batches(steps):
            loss = _run(case, schedule, model, optimizer, batch, stage)
            state = {key: value.clone() for key, value in state_of(model, optimizer).items()}
            made.append({("loss", "loss"): loss, **state})
    return made


def _run(
    case: Case,
    schedule: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    stage: Mapping[str, int],
) -> Tensor:
    newest = dict(model.named_parameters())
    kept = [{name: p.detach().clone() for name, p in newest.items()}]
    sums: dict[str, Tensor] = {}
    total = torch.zeros(())
    for m in range(case.micro_batches):
        part = _rows(batch, m, case.micro_batches)
        seen = {
            name: kept[case.version(schedule, stage[name], m)][name].clone().requires_grad_()
            for name in newest
        }
        given = ((), part) if isinstance(part, dict) else (part, {})
        loss = case.share(part, batch, functional_call(model, seen, *given, tie_weights=False))
        total = total + loss.detach()
        gradients = torch.autograd.grad(loss, list(seen.values()), allow_unused=True, materialize_grads=True)
        for name, gradient in zip(seen, gradients, strict=True):
            sums[name] = sums.get(name, 0.0) + gradient
        if (m + 1) % case.every(schedule) == 0:
            for name, parameter in newest.items():
                parameter.grad = sums[name]
            optimizer.step()
            sums = {}
            kept.append({name: p.detach().clone() for name, p in newest.items()})
    return total


def _rows(batch: Batch, number: int, count: int) -> Batch:
    if isinstance(batch, dict):
        return {name: x.chunk(count)[number] for name, x in batch.items()}
    return tuple(x.chunk(count)[number] for x in batch)
