"""``shardc::uniform`` inside kernels: the numbers of its ATen form, to the last bit."""

from __future__ import annotations

import pytest
import torch

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.eager.interpreter import run
from shardc.passes.fuse.kern_fuse import fuse_module

from .conftest import traced

UNIFORM = torch.ops.shardc.uniform
CALL = 'torch.operator "torch.shardc.uniform"'
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [0, -1, 2**62 + 12345])
@pytest.mark.parametrize("shape", [(), (7,), (3, 1), (2, 3, 6)], ids=str)
def test_numbers(shape: tuple[int, ...], seed: int) -> None:
    def f(seed: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        place = (shape, [0] * len(shape), shape)
        made = [UNIFORM(seed, 3 + i, *place, dtype=dtype) * 2 for i, dtype in enumerate(DTYPES)]
        # In the next op's loops the last dim is two, the others are one, or they come in another order.
        return [*made, UNIFORM(seed, 9, *place, dtype=torch.float32).reshape(x.shape) + x]

    shapes = {(): (1, 1), (7,): (7, 1), (3, 1): (1, 3), (2, 3, 6): (6, 2, 3)}
    tensors = [torch.tensor(seed), torch.zeros(shapes[shape])]
    module = traced(f, tensors)
    fuse_module(module)
    module.operation.verify()
    assert CALL not in str(module)
    for [found], expected in zip(run(module, [[t] for t in tensors]), f(*tensors), strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_a_run_in_f64_draws_the_same_numbers_with_and_without_kernels() -> None:
    def f(seed: torch.Tensor) -> list[torch.Tensor]:
        return [UNIFORM(seed, 3, (4, 6), (0, 0), (4, 6), dtype=dtype) + 1.0 for dtype in DTYPES]

    seed = torch.tensor(5)
    calls, kernels = traced(f, [seed]), traced(f, [seed])
    fuse_module(kernels)
    assert CALL in str(calls) and CALL not in str(kernels)
    runs = (run(module, [[seed]], widen=True) for module in (calls, kernels))
    for [called], [computed], dtype in zip(*runs, DTYPES, strict=True):
        drawn = UNIFORM(seed, 3, (4, 6), (0, 0), (4, 6), dtype=dtype)
        assert torch.equal(called, drawn.double() + 1) and torch.equal(computed, called)


@pytest.mark.parametrize(("offsets", "whole"), [((2, 0), (4, 6)), ((0, 0), (4, 6))])
def test_a_part_of_a_tensor_stays_with_aten(offsets: tuple[int, ...], whole: tuple[int, ...]) -> None:
    f = lambda seed, x: UNIFORM(seed, 0, (2, 6), offsets, whole, dtype=torch.float32) + x * 2  # noqa: E731
    module = traced(f, [torch.tensor(5), torch.zeros(2, 6)])
    fuse_module(module)
    assert CALL in str(module)


def test_layers_that_draw_share_a_kernel() -> None:
    def f(x: torch.Tensor, seed: torch.Tensor) -> list[torch.Tensor]:
        results = [x]
        for draw in (0, 2, 4):
            kept = [
                UNIFORM(seed, draw + i, (6, 6), (0, 0), (6, 6), dtype=torch.float32) < 0.9 for i in range(2)
            ]
            results.append(x @ torch.where(kept[0] & kept[1], results[-1] + 1, 0))
        return results[1:]

    tensors = [torch.eye(6), torch.tensor(7)]
    module = traced(f, tensors)
    fuse_module(module)
    calls = kernels(module)
    assert len(calls) == 3 and len({kernel_name(op) for op in calls}) == 1
    for [found], expected in zip(run(module, [[t] for t in tensors]), f(*tensors), strict=True):
        assert torch.equal(found, expected)
