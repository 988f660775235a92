"""Values between two kernels are written in the order in which the first one reads memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax of a transpose": lambda x: torch.softmax(x.mT * 2, -1),
    "its logarithm": lambda x: torch.log_softmax(x.mT, -1) + 1,
    "norm of a transpose": lambda x: F.layer_norm(x.mT, (x.shape[-2],)),
    "read by two kernels": lambda x: (y := torch.softmax(x.mT, -1)) * y.sum(-2, keepdim=True),
    "also read as it is": lambda x: torch.softmax(x.mT, -1).mT * x,
    "heads": lambda x: torch.softmax(x[:, None].permute(2, 0, 1, 3).exp(), 0),
    "rows added at indices": lambda x: torch.zeros_like(x.mT).index_add(
        -2, torch.arange(x.shape[-1]) // 2, torch.softmax(x.mT, -1)
    ),
}


@pytest.mark.parametrize("shape", [(65, 130), (3, 40, 33), (2, 1, 50), (1, 200, 17)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str, shape: tuple[int, ...]) -> None:
    if name == "heads" and len(shape) == 2:
        shape = (*shape, 2)
    torch.manual_seed(0)
    x, found = torch.randn(shape), []
    torch._dynamo.reset()
    for call in (torch.compile(FUNCTIONS[name], backend="shardc", dynamic=False), FUNCTIONS[name]):
        leaf = x.clone().requires_grad_()
        made = call(leaf)
        torch.manual_seed(1)
        found.append([made.detach(), *torch.autograd.grad(made, leaf, torch.randn(made.shape))])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
