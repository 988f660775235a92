"""Calls give the same values for operands with other strides, as slices and transposed views have them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from shardc.backends.eager.aten import prepare
from shardc.dialects.aten.call import Call, OpCall
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import TensorType

aten = torch.ops.aten
ALL = (True, True, True)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def _cases() -> dict[str, tuple[Any, ...]]:
    rows, image, weight = drawn(4, 8, 6), drawn(4, 8, 6, 6), drawn(8, 8, 3, 3)
    _, mean, rstd = aten.native_layer_norm(rows, [6], None, None, 1e-5)
    _, of_group, rstd_of_group = aten.native_group_norm(image, None, None, 4, 8, 36, 4, 1e-5)
    _, of_batch, rstd_of_batch = aten.native_batch_norm(image, None, None, None, None, True, 0.1, 1e-5)
    _, places = aten.max_pool2d_with_indices(image, [2, 2], [2, 2])
    logs, labels, ids = torch.log_softmax(rows, -1), torch.arange(32) % 6, torch.arange(32).view(4, 8) % 10
    settings = (1, 1), (1, 1), (1, 1), False, (0, 0), 1
    return {
        "native_layer_norm": (rows, (6,), drawn(6), drawn(6), 1e-5),
        "native_layer_norm_backward": (drawn(4, 8, 6), rows, (6,), mean, rstd, drawn(6), drawn(6), ALL),
        "native_group_norm": (image, drawn(8), drawn(8), 4, 8, 36, 4, 1e-5),
        "native_group_norm_backward": (
            *(drawn(4, 8, 6, 6), image, of_group, rstd_of_group, drawn(8)),
            *(4, 8, 36, 4, ALL),
        ),
        "native_batch_norm_backward": (
            *(drawn(4, 8, 6, 6), image, drawn(8), None, None),
            *(of_batch, rstd_of_batch, True, 1e-5, ALL),
        ),
        "max_pool2d_with_indices_backward": (
            *(drawn(4, 8, 3, 3), image, (2, 2), (2, 2)),
            *((0, 0), (1, 1), False, places),
        ),
        "avg_pool2d_backward": (drawn(4, 8, 3, 3), image, (2, 2), (2, 2), (0, 0), False, True, None),
        "_log_softmax": (rows, 1, False),
        "_log_softmax_backward_data": (drawn(4, 8, 6), logs, -1, torch.float64),
        "_softmax_backward_data": (drawn(4, 8, 6), logs.exp(), -1, torch.float64),
        "embedding": (drawn(10, 6), ids),
        "embedding_dense_backward": (drawn(4, 8, 6), ids, 10, -1, False),
        "nll_loss_forward": (logs.view(32, 6), labels, drawn(6).abs(), 1, -100),
        "convolution": (image, weight, drawn(8), *settings[:3], False, (0, 0), 1),
        "convolution_backward": (drawn(4, 8, 6, 6), image, weight, (8,), *settings, ALL),
        "gather": (rows, 2, ids[:, :, None].expand(4, 8, 3) % 6),
        "scatter_add": (rows, 2, ids[:, :, None].expand(4, 8, 3) % 6, drawn(4, 8, 3)),
        "cumsum": (rows, 1),
        "topk": (rows, 3, 1),
        "upsample_bilinear2d_backward": (drawn(4, 8, 12, 12), (12, 12), (4, 8, 6, 6), False),
        "grid_sampler_2d_backward": (
            *(drawn(4, 8, 5, 5), image, drawn(4, 5, 5, 2)),
            *(0, 0, False, (True, True)),
        ),
        "bmm": (drawn(4, 3, 5), drawn(4, 5, 6)),
        "addmm": (drawn(6), drawn(3, 5), drawn(5, 6)),
        "_pdist_forward": (drawn(5, 6), 2.0),
        "reflection_pad2d_backward": (drawn(4, 8, 8, 8), image, (1, 1, 1, 1)),
        "unfold_backward": (drawn(4, 3, 2), (4, 6), 1, 2, 2),
    }


CASES = _cases()


def gaps(x: Tensor) -> Tensor:
    """Every second element along each dim, between other values."""
    wide = torch.full([2 * n for n in x.shape], 3, dtype=x.dtype)
    return wide[tuple(slice(0, 2 * n, 2) for n in x.shape)].copy_(x)


def part(x: Tensor) -> Tensor:
    """The second half of a tensor along dim 1, as a device's slice."""
    wide = torch.full([x.shape[0], 2 * x.shape[1], *x.shape[2:]], 3, dtype=x.dtype)
    return wide[:, x.shape[1] :].copy_(x)


def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


@pytest.mark.parametrize("strided", [gaps, part, transposed])
@pytest.mark.parametrize("name", CASES)
def test_values_do_not_depend_on_strides(name: str, strided: Callable[[Tensor], Tensor]) -> None:
    arguments, target = CASES[name], f"aten.{name}"
    wanted = overload(target)(*arguments)
    wanted = (wanted,) if isinstance(wanted, Tensor) else tuple(wanted)
    args = tuple(TensorType(tuple(a.shape), a.dtype) if isinstance(a, Tensor) else a for a in arguments)
    results = tuple(None if t is None else TensorType(tuple(t.shape), t.dtype) for t in wanted)
    defaults = [a.default_value for a in overload(target)._schema.arguments[len(args) :]]
    call = prepare(cast(Call, SimpleNamespace(spec=OpCall(target, (*args, *defaults), results))), widen=False)
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    for place, tensor in enumerate(tensors):
        if tensor.dim() < (1 if strided is gaps else 2):
            continue
        operands = [strided(t) if n == place else t for n, t in enumerate(tensors)]
        for found, expected in zip(call(operands), wanted, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
