"""``shardc::uniform`` against a plain Philox, and the promises that shards and dtypes rest on."""

import importlib.util
import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.runtime.operators import random

M32 = 0xFFFFFFFF
F64 = torch.float64


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox-4x32-10 as the paper writes it, on Python integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & M32, (p0 >> 32) ^ c3 ^ k1, p0 & M32
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c0, c1, c2, c3


def whole(size, *, seed=1234, op=7, dtype=torch.float32):
    return torch.ops.shardc.uniform(torch.tensor(seed), op, size, [0] * len(size), size, dtype=dtype)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the vectors that come with Random123 (kat_vectors, philox4x32 10)
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((M32, M32, M32, M32), (M32, M32), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers(counter, key, words):
    expected = [int(word, 16) for word in words.split()]
    assert list(philox(counter, key)) == expected
    low = counter[0] | counter[1] << 32
    signed = low - (1 << 64) if low >> 63 else low
    seed = key[0] | key[1] << 32
    seed = torch.tensor(seed - (1 << 64) if seed >> 63 else seed)
    made = random.philox(torch.tensor([signed]), counter[2], counter[3], seed)
    assert [int(word) & M32 for word in made] == expected


@pytest.mark.parametrize("seed", [0, 1, -1, 0x123456789ABCDEF])
@pytest.mark.parametrize("op", [0, 5, M32])
def test_every_element_is_the_documented_word(seed, op):
    size, bits = (2, 3, 7), seed & ((1 << 64) - 1)
    key = (bits & M32, bits >> 32)
    made = whole(size, seed=seed, op=op, dtype=F64)
    for i, j, k in itertools.product(*map(range, size)):
        block = (i * 3 + j) * 2 + k // 4
        high, low = (philox((block, 0, op, stream), key)[k % 4] for stream in (0, 1))
        assert made[i, j, k].item() == (high << 21 | low >> 11) / 2**53


def test_blocks_beyond_32_bits_use_the_second_counter_word():
    rows = 1 << 33
    made = torch.ops.shardc.uniform(torch.tensor(3), 2, [1, 4], [rows - 1, 0], [rows, 4], dtype=torch.float32)
    words = philox((M32, 1, 2, 0), (3, 0))
    assert made.flatten().tolist() == [(word >> 8) / 2**24 for word in words]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", list(random.BITS))
@pytest.mark.parametrize("size", [(29,), (6, 10), (5, 3), (4, 6, 9), (3, 1, 1)])
def test_a_shard_equals_the_slice_of_the_whole(size, dtype):
    full = whole(size, dtype=dtype)
    spans = [[(a, b) for a in range(n) for b in range(a + 1, n + 1)][:: 1 + n // 3] for n in size]
    for span in itertools.product(*spans):
        local, offsets = [b - a for a, b in span], [a for a, _ in span]
        shard = torch.ops.shardc.uniform(torch.tensor(1234), 7, local, offsets, size, dtype=dtype)
        assert shard.is_contiguous() and shard.dtype == dtype
        assert torch.equal(shard, full[tuple(slice(a, b) for a, b in span)])


def test_chunks_do_not_show(monkeypatch):
    full = whole((37, 11))
    monkeypatch.setattr(random, "CHUNK_BLOCKS", {"cpu": 5})
    assert torch.equal(
        random.uniform(torch.tensor(1234), 7, [37, 11], [0, 0], [37, 11], dtype=torch.float32), full
    )


@pytest.mark.parametrize("dtype", list(random.BITS))
def test_values_are_uniform_and_below_one(dtype):
    made = whole((512, 333), dtype=dtype).double()
    assert made.min() >= 0 and made.max() <= 1 - 2.0 ** -random.BITS[dtype]
    counts = torch.bincount((made * 256).long().flatten(), minlength=256).double()
    expected = made.numel() / 256
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert abs(chi_square - 255) < 4 * math.sqrt(2 * 255)


def test_neighbours_and_ops_and_seeds_are_independent():
    made = whole((300, 300), dtype=F64)
    others = [
        made[:, 1:],
        made[1:],
        whole((300, 300), op=8, dtype=F64),
        whole((300, 300), seed=1235, dtype=F64),
    ]
    for other in others:
        same = made[: other.shape[0], : other.shape[1]]
        correlation = torch.corrcoef(torch.stack([same.flatten(), other.flatten()]))[0, 1].item()
        assert abs(correlation) < 4 / math.sqrt(same.numel())
        assert not (same == other).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_narrow_dtype_truncates_the_wide_number(dtype):
    wide, scale = whole((50, 50), dtype=F64), 2.0 ** random.BITS[dtype]
    assert torch.equal(whole((50, 50), dtype=dtype).double(), (wide * scale).floor() / scale)


def test_scalars_and_empty_shards():
    assert whole(()).shape == () and whole(()).item() == whole((1,)).item()
    empty = torch.ops.shardc.uniform(torch.tensor(0), 0, [3, 0], [0, 4], [3, 4], dtype=torch.float32)
    assert empty.shape == (3, 0)


def test_padding_past_the_end_leaves_the_rest_alone():
    padded = torch.ops.shardc.uniform(torch.tensor(1234), 7, [4, 4], [4, 4], [6, 7], dtype=torch.float32)
    assert torch.equal(padded[:2, :3], whole((6, 7))[4:, 4:])
    assert (padded >= 0).all() and (padded < 1).all()


def test_the_seed_is_an_input_of_a_traced_program():
    def draw(seed):
        return torch.ops.shardc.uniform(seed, 4, [3, 5], [0, 0], [3, 5], dtype=torch.float32)

    traced = make_fx(draw)(torch.tensor(1))
    calls = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.shardc.uniform.default]
    assert torch.equal(traced(torch.tensor(99)), draw(torch.tensor(99)))


def test_fake_tensors_carry_shape_dtype_and_device():
    with FakeTensorMode():
        made = torch.ops.shardc.uniform(torch.tensor(0), 1, [2, 9], [0, 0], [4, 9], dtype=torch.bfloat16)
    assert (made.shape, made.dtype, made.device.type) == ((2, 9), torch.bfloat16, "cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": torch.int64}, "dtype torch.int64 is not one of"),
        ({"op": -1}, "op must be"),
        ({"op": 1 << 32}, "op must be"),
        ({"offsets": [0]}, "differ in rank"),
        ({"seed": torch.tensor([1])}, "0-d int64"),
        ({"seed": torch.tensor(1.0)}, "0-d int64"),
    ],
)
def test_bad_arguments_are_named(change, message):
    good = {"seed": torch.tensor(0), "op": 0, "size": [2, 2], "offsets": [0, 0], "global_size": [2, 2]}
    with pytest.raises(ValueError, match=message):
        torch.ops.shardc.uniform(**{**good, "dtype": torch.float32, **change})


def test_a_copy_of_the_module_reuses_the_op():
    spec = importlib.util.spec_from_file_location("shardc.runtime.operators.copy", random.__file__)
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    again = copy.uniform(torch.tensor(1234), 7, [3, 3], [0, 0], [3, 3], dtype=torch.float32)
    assert torch.equal(whole((3, 3)), again)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", list(random.BITS))
def test_cuda_makes_the_same_numbers(dtype):
    seed = torch.tensor(1234, device="cuda")
    made = torch.ops.shardc.uniform(seed, 7, [40, 21], [0, 0], [40, 21], dtype=dtype)
    assert torch.equal(made.cpu(), whole((40, 21), dtype=dtype))
