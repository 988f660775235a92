"""How a batch reaches the model and the loss, by signatures; against eager calls, and in artefacts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BatchEncoding
from transformers.modeling_outputs import SequenceClassifierOutput

from shardc.artefact.manifest import describe_batch
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import BatchAmbiguous, BatchNotTaken, LossNotTaken
from shardc.frontend.step.batch import flatten_batch, unflatten_batch
from shardc.frontend.step.capture import capture_step
from shardc.runtime.batch import leaves_of

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
MASK = torch.tensor([1.0, 0, 1, 0, 1, 1])[:, None]


class Net(nn.Module):
    """Three classes of four features; subclasses say what ``forward`` takes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


class Masked(Net):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.body(x if mask is None else x * mask)


class Both(Net):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.body(x), y)


class Pair(Net):
    def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
        return self.body(both[0] + both[1])


@dataclass(frozen=True)
class Rows:
    x: Tensor
    mask: Tensor | None = None


@dataclass
class Labelled:
    x: Tensor
    y: Tensor
    day: int = 3


class OfObject(Net):
    def forward(self, rows: Labelled) -> Tensor:
        return self.body(rows.x) * rows.day


class Named(NamedTuple):
    x: Tensor
    y: Tensor


class Ours(nn.Module):
    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target)


def mean(output: Tensor, batch: object) -> Tensor:
    return output.square().mean()


def loss_of(model: nn.Module, loss: Any, batch: object) -> Tensor:
    """The loss of the captured step."""
    capture = capture_step(model, torch.optim.SGD(model.parameters(), 0.1), batch, loss=loss)
    held = {(role, name): value for (role, name), value in capture.initial_values().items()}
    tensors, tree = flatten_batch(batch)
    held |= {("input", name): tensor for name, tensor in zip(tree.names, tensors, strict=True)}
    held |= {("hyper", spec.name): torch.tensor(0.1) for spec in capture.with_role("hyper")}
    held |= {("seed", "seed"): torch.tensor(0)}
    with torch.no_grad():
        return capture.graph(*(held[spec.role, spec.name] for spec in capture.arguments))[0]


def entropy(**options: float) -> Tensor:
    return F.cross_entropy(Net()(X), Y, **options)


def from_loader() -> object:
    return next(iter(DataLoader(TensorDataset(X, Y), batch_size=6)))


PAIRS = {
    "a pair": (Net, (X, Y), F.cross_entropy, entropy),
    "a loader's list": (Net, from_loader(), F.cross_entropy, entropy),
    "a named tuple": (Net, Named(X, Y), lambda output, y: F.cross_entropy(output, y), entropy),
    "a module": (Net, (X, Y), nn.CrossEntropyLoss(label_smoothing=0.1), lambda: entropy(label_smoothing=0.1)),
    "a module of ours": (Net, (X, Y), Ours(), entropy),
    "a partial": (
        *(Net, (X, Y), partial(F.cross_entropy, label_smoothing=0.1)),
        lambda: entropy(label_smoothing=0.1),
    ),
    "an optional parameter": (Masked, (X, Y), F.cross_entropy, entropy),
    "inputs, target": (
        *(Masked, (X, MASK, Y), F.cross_entropy),
        lambda: F.cross_entropy(Masked()(X, MASK), Y),
    ),
    "a part that is None": (Masked, (X, None, Y), Ours(), entropy),
    "a loss of all parts": (Net, (X, Y), lambda output, batch: F.cross_entropy(output, batch[1]), entropy),
    "a tuple within": (Pair, ((X, X), Y), F.cross_entropy, lambda: F.cross_entropy(Pair()((X, X)), Y)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", PAIRS)
def test_the_last_part_is_the_target(case: str) -> None:
    model, batch, loss, expected = PAIRS[case]
    torch.testing.assert_close(loss_of(model(), loss, batch), expected().detach())


WHOLE = {
    "all parts to the forward": (Both, (X, Y), None, entropy),
    "the loss gets the batch": (
        *(Masked, (X, MASK), lambda output, batch: (output * batch[1]).mean()),
        lambda: (Masked()(X, MASK) * MASK).mean(),
    ),
    "a lone tensor": (Net, X, mean, lambda: Net()(X).square().mean()),
    "a mapping": (Masked, {"x": X, "mask": MASK}, mean, lambda: Masked()(X, MASK).square().mean()),
    "a dataclass by its names": (Masked, Rows(X, MASK), mean, lambda: Masked()(X, MASK).square().mean()),
    "a dataclass as it is": (
        *(OfObject, Labelled(X, Y), lambda output, rows: F.cross_entropy(output, rows.y)),
        lambda: F.cross_entropy(Net()(X) * 3, Y),
    ),
    "an encoding": (
        *(Masked, BatchEncoding({"x": X, "mask": MASK}), lambda output, batch: (output * batch.mask).mean()),
        lambda: (Masked()(X, MASK) * MASK).mean(),
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_the_batch_is_passed_whole(case: str) -> None:
    model, batch, loss, expected = WHOLE[case]
    torch.testing.assert_close(loss_of(model(), loss, batch), expected().detach())


def test_the_batch_of_a_models_own_output_is_passed_by_names() -> None:
    """A ModelOutput is a mapping and a dataclass; what is None in it is no entry."""

    class OfOutputs(Net):
        def forward(self, logits: Tensor) -> Tensor:
            return self.body(logits)

    batch = SequenceClassifierOutput(logits=X)
    found = loss_of(OfOutputs(), lambda output, batch: (output.sum(1) * batch.logits[:, 0]).mean(), batch)
    torch.testing.assert_close(found, (Net()(X).sum(1) * X[:, 0]).mean().detach())


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


OUTPUTS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "a dataclass": Output,
    "a ModelOutput": lambda loss, logits: SequenceClassifierOutput(loss=loss, logits=logits),
    "a tuple": lambda loss, logits: (loss, logits),
    "a mapping": lambda loss, logits: {"loss": loss, "logits": logits},
    "itself": lambda loss, logits: loss,
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_outputs_that_hold_the_loss(output: str) -> None:
    class WithLoss(Net):
        def forward(self, x: Tensor, y: Tensor) -> object:
            logits = self.body(x)
            return OUTPUTS[output](F.cross_entropy(logits, y), logits)

    torch.testing.assert_close(loss_of(WithLoss(), None, (X, Y)), entropy().detach())


REFUSED: dict[str, tuple[type[Net], object, Any, type[ShardcError], str]] = {
    "unknown keys": (Net, {"x": X, "day": Y, "hour": Y}, mean, BatchNotTaken, "no parameter 'day', 'hour'"),
    "unknown fields": (Net, Labelled(X, Y), mean, BatchNotTaken, "no parameter 'y', 'day'"),
    "a lacking key": (Both, {"x": X}, None, BatchNotTaken, "missing a required argument: 'y'"),
    "no loss": (Net, (X, Y), None, BatchNotTaken, r"forward of Net\(x: .*loss= given, the last part"),
    "too many parts": (Net, (X, MASK, Y), Ours(), BatchNotTaken, "too many positional arguments"),
    "the target is needed": (Both, (X, Y), F.mse_loss, BatchNotTaken, "'y', where the last of 2 parts is"),
    "a loss of one": (Net, (X, Y), lambda output: output.sum(), LossNotTaken, r"<lambda>\(output\) cannot"),
    "no target": (Net, (X,), F.mse_loss, BatchNotTaken, "it gets nothing, where the last of 1 parts"),
    "a mask or a target": (Masked, (X, Y), Ours(), BatchAmbiguous, r"mask.*or 'target' of Ours"),
    "no entry is the target": (
        Masked,
        {"x": X, "y": Y},
        F.mse_loss,
        BatchAmbiguous,
        "'x', 'y' is the target",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_line(case: str) -> None:
    model, batch, loss, error, message = REFUSED[case]
    with pytest.raises(error, match=f"(?s){message}") as caught:
        loss_of(model(), loss, batch)
    assert (caught.value.where or "").startswith(__file__)


def test_a_forward_hook_that_changes_arguments_is_asked_and_not_the_signature() -> None:
    model = Net()
    model.register_forward_pre_hook(lambda _, args: args[:1])
    found = loss_of(model, lambda output, batch: F.cross_entropy(output, batch[1]), (X, Y))
    torch.testing.assert_close(found, entropy().detach())


@pytest.mark.parametrize(
    "batch",
    [Rows(X), Labelled(X, Y), {"deep": Rows(X, MASK), "y": [Named(X, Y)]}, BatchEncoding({"x": X})],
    ids=lambda batch: type(batch).__name__,
)
def test_forms_of_batches_are_read_by_the_runtime(batch: object) -> None:
    tensors, tree = flatten_batch(batch)
    found = leaves_of(batch, json.loads(json.dumps(describe_batch(tree))))
    assert list(found) == list(tree.names)
    assert all(a is b for a, b in zip(found.values(), tensors, strict=True))
    again = unflatten_batch(tree, tensors)
    assert type(again) is type(batch)
    assert again is not batch or isinstance(batch, Mapping)
    assert flatten_batch(again)[1].names == tree.names


def test_a_dataclass_that_pytree_knows_is_one_like_others() -> None:
    @dataclass
    class Known:
        x: Tensor
        mask: Tensor

    torch.utils._pytree.register_dataclass(Known)
    found = loss_of(Masked(), lambda output, batch: (output * batch.mask).mean(), Known(X, MASK))
    torch.testing.assert_close(found, (Masked()(X, MASK) * MASK).mean().detach())
