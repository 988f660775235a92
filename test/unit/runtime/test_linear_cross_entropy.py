"""``shardc::linear_cross_entropy`` by plain torch, what runs where a kernel does not compile: against eager
in f64.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from shardc.runtime.operators import linear_cross_entropy as module

OP, BACKWARD = torch.ops.shardc.linear_cross_entropy, torch.ops.shardc.linear_cross_entropy_backward
ROWS, CLASSES, SIZE = 11, 7, 5


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("spread", [False, True])
def test_values_and_gradients(monkeypatch: pytest.MonkeyPatch, has_bias: bool, spread: bool) -> None:
    """In chunks of rows of which the last is not whole."""
    monkeypatch.setattr(module, "CHUNK_LOGITS", 4 * CLASSES)
    torch.manual_seed(0)
    x, w, b = (
        torch.randn(shape).double().requires_grad_() for shape in ((ROWS, SIZE), (CLASSES, SIZE), (CLASSES,))
    )
    index, grad, more = (
        torch.randint(CLASSES, (ROWS,)),
        torch.randn(ROWS).double(),
        torch.randn(ROWS).double(),
    )
    bias = b if has_bias else None
    exact = F.log_softmax(F.linear(x, w, bias), 1)
    picked, total = exact.gather(1, index[:, None]).squeeze(1), exact.sum(1)
    given = x.detach(), w.detach(), index
    bias_ = None if bias is None else b.detach()
    logp, lse, summed, top = OP(*given, bias_)
    torch.testing.assert_close((logp, summed), (picked.detach(), total.detach()))
    torch.testing.assert_close(top, F.linear(x, w, bias).detach().amax(1))
    ((grad * picked).sum() + (more * total).sum() * spread).backward()
    made = BACKWARD(-grad, *given, lse, None, bias_, more if spread else None, None, -1.0)
    wanted = [leaf.grad for leaf in (x, w, b)]
    for got, leaf in zip(made, wanted[: 3 if has_bias else 2], strict=False):
        torch.testing.assert_close(got, leaf)


def test_classes_that_devices_share_out() -> None:
    """Each makes its part of the gradients, told the logarithms and sums of all classes."""
    torch.manual_seed(0)
    x, w = torch.randn(ROWS, SIZE).double(), torch.randn(CLASSES, SIZE).double()
    index, grad = torch.randint(3, (ROWS,)), torch.randn(ROWS).double()
    lse = F.linear(x, w).logsumexp(1)
    drows, dweight, _ = BACKWARD(grad, x, w, index, lse)
    first = BACKWARD(grad, x, w[:3], index, lse, sums=grad)
    rest = BACKWARD(0 * grad, x, w[3:], index, lse, weight_again=w[3:].clone(), sums=grad)
    torch.testing.assert_close((first[0] + rest[0], torch.cat((first[1], rest[1]))), (drows, dweight))


@pytest.mark.parametrize("bad", [-1, CLASSES])
def test_a_wrong_class_is_an_error(bad: int) -> None:
    index = torch.zeros(ROWS, dtype=torch.int64)
    index[3] = bad
    with pytest.raises(IndexError, match=f"Target {bad} is out of bounds"):
        OP(torch.randn(ROWS, SIZE), torch.randn(CLASSES, SIZE), index)


def test_shapes_are_known_without_values() -> None:
    with FakeTensorMode():
        x, w, row = (
            torch.empty(ROWS, SIZE, dtype=torch.bfloat16),
            torch.empty(CLASSES, SIZE, dtype=torch.bfloat16),
            torch.empty(ROWS),
        )
        index = torch.empty(ROWS, dtype=torch.int64)
        assert [(tuple(t.shape), t.dtype) for t in OP(x, w, index)] == [((ROWS,), torch.float32)] * 4
        made = BACKWARD(row, x, w, index, row)
    assert [tuple(t.shape) for t in made] == [(ROWS, SIZE), (CLASSES, SIZE), (CLASSES,)]
    assert all(t.dtype == torch.bfloat16 for t in made)
