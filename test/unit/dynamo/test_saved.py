"""What a forward keeps for its backward: what cannot be computed again in passing, and no second
copy of it.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import shardc

ROWS, HIDDEN, CLASSES = 64, 96, 512


class Net(nn.Module):
    """A tanh-gelu between matrix products, a loss of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, CLASSES)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.up(x)
        h = 0.5 * h * (1.0 + torch.tanh(0.8 * (h + 0.04 * h**3)))
        return nn.functional.cross_entropy(self.down(h), y)


def saved_bytes(model: nn.Module, called: nn.Module, *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The loss, and the bytes of the memory that autograd holds for its backward, parameters and inputs
    aside.
    """
    given = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *inputs)}
    found: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    called(*inputs)  # a trace saves tensors, too
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = called(*inputs)
    return loss, sum(size for address, size in found.items() if address not in given)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neither_tanh_nor_log_softmax_is_saved(dtype):
    torch.manual_seed(0)
    model = Net().to(dtype)
    x, y = torch.randn(ROWS, HIDDEN, dtype=dtype), torch.randint(CLASSES, (ROWS,))
    loss, saved = saved_bytes(model, torch.compile(model, backend="shardc", dynamic=False), x, y)
    wanted = ROWS * (2 * 4 * HIDDEN + CLASSES) * dtype.itemsize  # what the products read and make
    assert wanted <= saved <= wanted + 1024  # and a maximum and a sum for each row
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    exact = model.double()
    expected = torch.autograd.grad(exact(x.double(), y), list(exact.parameters()))
    for gradient, good in zip(gradients, expected, strict=True):
        error = (gradient.double() - good).norm() / good.norm()
        assert error < (1e-5 if dtype == torch.float32 else 2e-2)


def test_a_loss_alone_needs_no_second_copy_of_the_logits():
    """Where the logits are no result they are saved all the same, not what is left of them without their
    maximum.
    """
    head = nn.Linear(HIDDEN, CLASSES, bias=False)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(head(x.tanh()).view(-1, CLASSES), y.view(-1))

    x, y = torch.randn(4, ROWS, HIDDEN), torch.randint(CLASSES, (4, ROWS))
    peaks = dict(shardc.explain_memory(loss_of, x, y, options={"matmuls": "extern"}).graphs)
    assert [size for size, _ in peaks["forward"].held].count(16 * ROWS * CLASSES) == 1


def test_without_kernels_nothing_is_computed_again():
    torch.manual_seed(0)
    model = Net()
    x, y = torch.randn(ROWS, HIDDEN), torch.randint(CLASSES, (ROWS,))
    found = []
    for backend, options in (("shardc", {"fuse": False}), ("aot_eager_default_partitioner", None)):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, dynamic=False, options=options)
        loss, saved = saved_bytes(model, compiled, x, y)
        found.append((saved, *torch.autograd.grad(loss, list(model.parameters()))))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(a, b) for a, b in zip(found[0][1:], found[1][1:], strict=True))


def test_windows_are_taken_again():
    """Saved windows overlap, and backward's kernels would copy them."""

    def filtered(x: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
        late = nn.functional.pad(x, (taps.shape[0] - 1, 0))
        return (late.unfold(-1, taps.shape[0], 1) * taps).sum(-1)

    x, taps = torch.randn(3, 500, requires_grad=True), torch.randn(24, requires_grad=True)
    called, sizes = torch.compile(filtered, backend="shardc", dynamic=False), []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    called(x, taps)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = called(x, taps)
    assert sizes and max(sizes) <= 3 * 523
    seed = torch.randn_like(made)
    wanted = torch.autograd.grad(filtered(x.double(), taps.double()), (x, taps), seed.double())
    for found, one in zip(torch.autograd.grad(made, (x, taps), seed), wanted, strict=True):
        torch.testing.assert_close(found, one, rtol=1e-4, atol=1e-3)
