"""What each device sends for a call along a dim that devices cut: an image [4, 8, 64, 64] in f32, 8 ways
along its height. A gather of the image is 458,752 bytes; one number a row, reduced, 14,336.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cut_calls import CutCall
from torch import Tensor

from shardc.dialects.context import new_context
from shardc.dialects.rules.proving.execution import sample

GATHER, ROW = 458_752, 14_336
SHAPE = (4, 8, 64, 64)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context():
        yield


def _image(*shape: int) -> Tensor:
    return sample(*(shape or SHAPE), dtype=torch.float32)


def _sent(target: str, *args: object, dims: tuple[int | None, ...] = (2,)) -> dict[str, int]:
    return CutCall(f"aten.{target}", args, dims).sent()


def test_logsumexp() -> None:
    """A maximum and a sum a row, as XLA's partitioner."""
    assert _sent("logsumexp", _image(), (2,), False) == {"all_reduce": 2 * ROW}


def test_softmax() -> None:
    assert _sent("_softmax", _image(), 2, False) == {"all_reduce": 2 * ROW}
    given = (_image(), _image().softmax(2), 2, torch.float32)
    assert _sent("_softmax_backward_data", *given, dims=(2, 2)) == {"all_reduce": ROW}


def test_layer_norm() -> None:
    """The mean and the variance; in backward, two sums. Heights are last: layer norm takes last dims."""
    x, weight, bias = _image(), _image(64), _image(64)
    assert _sent("native_layer_norm", x, (64,), weight, bias, 1e-5, dims=(3, None, None)) == {
        "all_reduce": 2 * ROW
    }
    statistics = _image(4, 8, 64, 1)
    given = (x, x, (64,), statistics, statistics, weight, bias, (True, True, True))
    dims = (3, 3, None, None, None, None)
    sent = _sent("native_layer_norm_backward", *given, dims=dims)
    assert sent == {"all_reduce": 2 * ROW}


def test_group_norm() -> None:
    """Two numbers for each of 4 x 4 groups, forward and backward; then gradients of 8 weights and biases."""
    x, weight, statistics, each = _image(), _image(8), _image(4, 4), 4 * 4 * 4 * 2 * 7 // 8
    sent = _sent("native_group_norm", x, weight, weight, 4, 8, 4096, 4, 1e-5, dims=(2, None, None))
    assert sent == {"all_reduce": 2 * each}
    given = (x, x, statistics, statistics, weight, 4, 8, 4096, 4, (True, True, True))
    sent = _sent("native_group_norm_backward", *given, dims=(2, 2, None, None, None))
    assert sent == {"all_reduce": 2 * each + 2 * (8 * 4 * 2 * 7 // 8)}


@pytest.mark.parametrize("target", ["max.dim", "min.dim", "argmax", "argmin"])
def test_extrema(target: str) -> None:
    """The extremum, and its place in 32 bits."""
    assert _sent(target, _image(), 2, False) == {"all_reduce": 2 * ROW}


def test_top_k() -> None:
    """Rows go to the devices, and candidates stay there, where that is less than candidates of all blocks."""
    assert _sent("topk", _image(), 3, 2, True, True) == {"all_to_all": GATHER // 8}
    long = _image(4, 8, 8192)
    sent = _sent("topk", long, 3, 2, True, True)
    assert sent == {"all_gather": 7 * 3 * 32 * 4, "all_reduce": 3 * 32 * 4 * 2 * 7 // 8}


@pytest.mark.parametrize("target", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans(target: str) -> None:
    """The total of each block."""
    given = () if target == "logcumsumexp" else (None,)
    assert _sent(target, _image(), 2, *given) == {"all_gather": 4 * ROW}


def test_sort() -> None:
    """Rows go to the devices; values come back, and places in 64 bits."""
    assert _sent("sort", _image(), 2, False) == {"all_to_all": (1 + 1 + 2) * GATHER // 8}
