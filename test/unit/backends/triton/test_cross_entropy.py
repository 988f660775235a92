"""Cross entropies of linear layers as Triton kernels: in the interpreter against eager in f64,
and compiled.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_mlir import ir
from torch_mlir.dialects import func

from shardc.backends.body.extract import kernels
from shardc.backends.triton.aot.compile import compile_kernels
from shardc.backends.triton.emit.emit import emit_kernel
from shardc.backends.triton.emit.emitted import Emitted
from shardc.cost.machine import GPUS
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.context import new_context
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.linear_cross_entropy import linear_cross_entropy
from shardc.dialects.kern.linear_cross_entropy_backward import linear_cross_entropy_backward
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.runtime.kernels.kernel_call import FINE

from .contractions import interpret
from .programs import BOUNDS

F32 = torch.float32
SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "warps": 1, "stages": 2}


def emitted(
    rows: int,
    classes: int,
    size: int,
    dtype: torch.dtype,
    target: str = "sm_90",
    made: str = "both",
    *,
    tf32: bool = False,
    whole: bool = False,
    part: bool = False,
    **config: int,
) -> tuple[Emitted, Emitted]:
    """The forward and the backward module; ``made``: which gradients. ``whole``: with a bias and the sum of
    all classes. ``part``: these are a part of the classes, too.
    """
    row, matrix, weight = (
        TensorType((rows,), F32),
        TensorType((rows, size), dtype),
        TensorType((classes, size), dtype),
    )
    index, number = TensorType((rows,), torch.int64), TensorType((), torch.int64)
    gradients = {"both": [matrix, weight], "drows": [matrix], "dweight": [weight]}[made]
    roles, bias = ["grad", "rows", "weight", "index", "lse"], TensorType((classes,), dtype)
    forms = {
        "forward": ([matrix, weight, index], [row, row, number]),
        "backward": ([row, matrix, weight, index, row], gradients),
    }
    if whole:
        forms["forward"] = [matrix, weight, index, bias], [row, row, number, row]
        forms["backward"] = [row, matrix, weight, index, row, bias, row], [matrix, weight, bias]
        roles += ["bias", "spread"]
    if part:
        forms["forward"][1].append(row)
        forms["backward"][0].append(row)
        roles.append("sums")
    with new_context() as context, ir.Location.unknown() as loc:
        module = ir.Module.create()
        for name, (given, results) in forms.items():
            with ir.InsertionPoint(module.body):
                block = func.FuncOp(name, ([write_type(t, context) for t in given], [])).add_entry_block()
            ip, arguments = ir.InsertionPoint(block), [builtin_type(t, context) for t in given]
            body, _, _ = kernel(
                name, list(block.arguments), arguments, results, values=config, loc=loc, ip=ip
            )
            inside = ir.InsertionPoint(body)
            if name == "forward":
                values = linear_cross_entropy(list(body.arguments), loc=loc, ip=inside)[: len(results)]
            else:
                inner = dict(zip(roles, body.arguments, strict=True))
                both = linear_cross_entropy_backward(inner, -0.5, loc=loc, ip=inside)
                values = both[: len(results)] if made == "both" else [both[made == "dweight"]]
            yield_values(values, loc=loc, ip=inside)
        forward, backward = (emit_kernel(k, GPUS[target], tf32=tf32) for k in kernels(module))
        return forward, backward


def given(rows: int, classes: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(rows, size).to(dtype), torch.randn(classes, size).to(dtype)
    return x, w, torch.randint(classes, (rows,)), torch.rand(rows) * (torch.rand(rows) > 0.3)


def check(rows: int, classes: int, size: int, dtype: torch.dtype, **config: int) -> None:
    x, w, index, grad = given(rows, classes, size, dtype)
    forward, backward = emitted(rows, classes, size, dtype, **config)
    logp, lse, wrong = interpret(forward, [x, w, index], [((rows,), F32), ((rows,), F32), ((), torch.int64)])
    wide = [t.double().requires_grad_() for t in (x, w)]
    exact = -F.cross_entropy(F.linear(*wide), index, reduction="none")
    torch.testing.assert_close(logp.double(), exact, rtol=2e-5, atol=2e-5)
    assert wrong == FINE
    exact.backward(-0.5 * grad.double())
    made = interpret(backward, [grad, x, w, index, lse], [((rows, size), dtype), ((classes, size), dtype)])
    for got, leaf in zip(made, wide, strict=True):
        bound = BOUNDS[dtype]
        torch.testing.assert_close(
            got.double(), leaf.grad, rtol=bound, atol=bound * leaf.grad.abs().max().item()
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("rows", "classes", "size"), [(32, 64, 32), (37, 75, 40), (1, 17, 16), (50, 16, 33)], ids=str
)
def test_values(rows: int, classes: int, size: int, dtype: torch.dtype) -> None:
    """Whole and ragged tiles, parts of classes that are joined, chunks of which the last is not whole."""
    check(rows, classes, size, dtype, **SMALL, parts=3, chunk=32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_with_a_bias_and_label_smoothing(dtype: torch.dtype) -> None:
    """The gradients of a loss that reads one class a row, and the sum of all."""
    rows, classes, size = 37, 75, 40
    x, w, index, grad = given(rows, classes, size, dtype)
    bias, spread = torch.randn(classes).to(dtype), 0.01 * torch.randn(rows)
    forward, backward = emitted(rows, classes, size, dtype, whole=True, **SMALL, parts=3, chunk=32)
    row = ((rows,), F32)
    logp, lse, _, total = interpret(forward, [x, w, index, bias], [row, row, ((), torch.int64), row])
    wide = [t.double().requires_grad_() for t in (x, w, bias)]
    exact = F.log_softmax(F.linear(*wide), 1)
    picked = exact.gather(1, index[:, None]).squeeze(1)
    torch.testing.assert_close(logp.double(), picked, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(total.double(), exact.sum(1), rtol=2e-5, atol=2e-3)
    (-0.5 * grad.double() * picked + spread.double() * exact.sum(1)).sum().backward()
    shapes = [((rows, size), dtype), ((classes, size), dtype), ((classes,), dtype)]
    made = interpret(backward, [grad, x, w, index, lse, bias, spread], shapes)
    for got, leaf in zip(made, wide, strict=True):
        bound = BOUNDS[dtype]
        torch.testing.assert_close(
            got.double(), leaf.grad, rtol=bound, atol=bound * leaf.grad.abs().max().item()
        )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_of_parts_of_the_classes(dtype: torch.dtype) -> None:
    """Two devices have 38 and 37 of 75 classes: each makes its largest logits and sums, and its part of the
    gradients.
    """
    rows, classes, size, cut = 37, 75, 40, 38
    x, w, index, grad = given(rows, classes, size, dtype)
    bias, spread, row = torch.randn(classes).to(dtype), 0.01 * torch.randn(rows), ((rows,), F32)
    wide = [t.double().requires_grad_() for t in (x, w, bias)]
    logits = F.linear(*wide)
    exact, drows = F.log_softmax(logits, 1), torch.zeros(rows, size, dtype=torch.float64)
    (
        -0.5 * grad.double() * exact.gather(1, index[:, None]).squeeze(1) + spread.double() * exact.sum(1)
    ).sum().backward()
    lse, sums = logits.logsumexp(1).float().detach(), -0.5 * grad + classes * spread
    for mine in (slice(0, cut), slice(cut, classes)):
        count, at = mine.stop - mine.start, index - mine.start
        forward, backward = emitted(
            rows, count, size, dtype, whole=True, part=True, **SMALL, parts=2, chunk=16
        )
        inside = (at >= 0) & (at < count)
        logp, own, _, total, top = interpret(
            forward, [x, w[mine], at, bias[mine]], [row, row, ((), torch.int64), row, row]
        )
        part = logits[:, mine].detach()
        torch.testing.assert_close(top.double(), part.amax(1), rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(own.double(), part.logsumexp(1), rtol=2e-5, atol=2e-5)
        torch.testing.assert_close((total + count * own).double(), part.sum(1), rtol=2e-5, atol=2e-3)
        picked = exact.detach()[inside].gather(1, index[inside, None]).squeeze(1)
        torch.testing.assert_close((logp + own - lse)[inside].double(), picked, rtol=2e-5, atol=5e-5)
        shapes = [((rows, size), dtype), ((count, size), dtype), ((count,), dtype)]
        made = interpret(backward, [grad, x, w[mine], at, lse, bias[mine], spread, sums], shapes)
        drows += made[0]
        for got, leaf in zip(made[1:], (wide[1].grad[mine], wide[2].grad[mine]), strict=True):
            torch.testing.assert_close(
                got.double(), leaf, rtol=BOUNDS[dtype], atol=BOUNDS[dtype] * leaf.abs().max().item()
            )
    bound = 2 * BOUNDS[dtype]
    torch.testing.assert_close(drows, wide[0].grad, rtol=bound, atol=bound * wide[0].grad.abs().max().item())


@pytest.mark.slow
def test_values_with_tiles_of_the_model() -> None:
    check(70, 150, 48, torch.float32)


def test_large_logits_do_not_overflow() -> None:
    x, w, index, _ = given(20, 40, 16, F32)
    (forward, _) = emitted(20, 40, 16, F32, **SMALL, parts=2, chunk=16)
    logp, lse, _ = interpret(forward, [x * 300, w, index], [((20,), F32), ((20,), F32), ((), torch.int64)])
    logits = F.linear(300 * x.double(), w.double())
    torch.testing.assert_close(lse.double(), logits.logsumexp(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        logp.double(), -F.cross_entropy(logits, index, reduction="none"), rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("bad", [-1, 40, 45])
def test_an_index_of_no_class_is_told(bad: int) -> None:
    """And adds no logit; 45 lies inside of the last tile."""
    x, w, index, grad = given(20, 40, 16, F32)
    index[7] = bad
    forward, backward = emitted(20, 40, 16, F32, **SMALL, parts=2, chunk=16)
    logp, lse, wrong = interpret(forward, [x, w, index], [((20,), F32), ((20,), F32), ((), torch.int64)])
    assert wrong == bad and logp[7] == -lse[7]
    grad[7] = 0
    drows, _ = interpret(backward, [grad, x, w, index, lse], [((20, 16), F32), ((40, 16), F32)])
    assert (drows[7] == 0).all() and drows.isfinite().all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("made", ["drows", "dweight"])
def test_one_gradient_alone(made: str) -> None:
    """Of a layer whose weight, or whose input, needs none: nothing is computed for the other."""
    x, w, index, grad = given(37, 75, 40, F32)
    shape = {"drows": (37, 40), "dweight": (75, 40)}
    forward, both = emitted(37, 75, 40, F32, **SMALL, chunk=32)
    _, lse, _ = interpret(forward, [x, w, index], [((37,), F32), ((37,), F32), ((), torch.int64)])
    wanted = interpret(both, [grad, x, w, index, lse], [(s, F32) for s in shape.values()])
    _, one = emitted(37, 75, 40, F32, made=made, **SMALL, chunk=32)
    assert [f.name.rpartition("_")[2] for f in one.functions] == ["slopes", made]
    (got,) = interpret(one, [grad, x, w, index, lse], [(shape[made], F32)])
    assert torch.equal(got, wanted[made == "dweight"])


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize(
    ("dtype", "whole", "part"),
    [
        (torch.bfloat16, False, False),
        (torch.float32, False, False),
        (torch.bfloat16, True, False),
        (torch.bfloat16, True, True),
    ],
    ids=["bf16", "f32", "bias", "part"],
)
def test_compiled(target: str, dtype: torch.dtype, whole: bool, part: bool, tmp_path: Path) -> None:
    """The head of a 1B Llama: matrix instructions in every product, no spills, memory for a few chunks of the
    logits.
    """
    rows, classes, size = 8192, 128256, 2048
    made = emitted(rows, classes, size, dtype, target, tf32=True, whole=whole, part=part)
    for compiled in compile_kernels(made, [GPUS[target]], tmp_path, processes=1):
        assert compiled.error is None, compiled.error
        for found in compiled.functions:
            assert (
                found.shared_bytes <= GPUS[target].shared_bytes and found.registers <= GPUS[target].registers
            )
            assert found.spill_bytes == 0 and found.local_accesses == 0, found
            assert found.matrix_ops or found.name.endswith(("_join", "_wrong", "_dbias")), found
