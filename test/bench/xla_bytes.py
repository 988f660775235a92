"""Bytes that each device sends for an op along a dim that devices cut: XLA's partitioner beside shardc.

An image [4, 8, 64, 64] in f32 is cut 8 ways along its height. XLA's figure is counted from the program that
it compiles for 8 CPU devices; the result is cut as the image is. shardc's are those that
``test/unit/passes/plan/test_space.py`` and ``test/unit/passes/propagate/split/test_cut_bytes.py`` assert.

    pip install jax
    python test/bench/xla_bytes.py
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
from jax import lax  # pyright: ignore[reportMissingImports]
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "passes" / "plan"))

WAYS = 8
SHAPE = (4, 8, 64, 64)
LAYOUT = ("NCHW", "OIHW", "NCHW")
Op = Callable[[Any], Any]


def convolution(size: int, stride: int = 1, pad: int | tuple[int, int] = 0, dilation: int = 1) -> Op:
    low, high = pad if isinstance(pad, tuple) else (pad, pad)

    def apply(x: Any) -> Any:
        weight = jnp.ones((8, 8, size, size))
        return lax.conv_general_dilated(
            x,
            weight,
            (stride, stride),
            [(low, high)] * 2,
            rhs_dilation=(dilation,) * 2,
            dimension_numbers=LAYOUT,
        )

    return apply


def transposed(x: Any) -> Any:
    return lax.conv_transpose(x, jnp.ones((8, 8, 2, 2)), (2, 2), "VALID", dimension_numbers=LAYOUT)


def window(combine: Op, start: float, size: int, stride: int, pad: tuple[int, int] = (0, 0)) -> Op:
    padding = ((0, 0), (0, 0), pad, pad)
    return lambda x: lax.reduce_window(x, start, combine, (1, 1, size, size), (1, 1, stride, stride), padding)


def pad(mode: str, **how: float) -> Op:
    return lambda x: jnp.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)), mode, **how)


def resized(method: str, scale: float) -> Op:
    rows = int(64 * scale)
    return lambda x: jax.image.resize(x, (4, 8, rows, rows), method, antialias=False)


def nearest(x: Any) -> Any:
    return x.repeat(2, 2).repeat(2, 3)


def shuffled(x: Any) -> Any:
    parts = x.reshape(4, 2, 2, 2, 64, 64).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(4, 2, 128, 128)


def as_channels(x: Any) -> Any:
    return x.reshape(4, 8, 32, 2, 32, 2).transpose(0, 1, 3, 5, 2, 4).reshape(4, 32, 32, 32)


def columns(size: int, stride: int, pad: int) -> Op:
    return lambda x: lax.conv_general_dilated_patches(
        x, (size, size), (stride, stride), [(pad, pad)] * 2, dimension_numbers=LAYOUT
    )


MAX, LOW, SUM = lax.max, -jnp.inf, lax.add
OPS: dict[str, Op] = {
    "convolution": convolution(3, pad=1),
    "convolution, stride 2": convolution(3, 2, 1),
    "convolution, dilated": convolution(3, pad=2, dilation=2),
    "convolution, stride 2, padded behind": convolution(3, 2, (0, 1)),
    "convolution, around": lambda x: convolution(3)(jnp.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "wrap")),
    "patches": convolution(4, 4),
    "transposed": transposed,
    "max pool 2x2": window(MAX, LOW, 2, 2),
    "max pool 3x3, stride 2": window(MAX, LOW, 3, 2, (1, 1)),
    "average pool 3x3": window(SUM, 0.0, 3, 1, (1, 1)),
    "nearest": nearest,
    "max pool 3x3, stride 2, rounded up": window(MAX, LOW, 3, 2, (0, 1)),
    "adaptive max pool": window(MAX, LOW, 4, 4),
    "bilinear 2x": resized("linear", 2),
    "bilinear 1.5x": resized("linear", 1.5),
    "bilinear half": resized("linear", 0.5),
    "bicubic 2x": resized("cubic", 2),
    "columns 3x3": columns(3, 1, 1),
    "columns of patches": columns(4, 4, 0),
    "shuffled pixels": shuffled,
    "pixels as channels": as_channels,
    "roll by 3": lambda x: jnp.roll(x, 3, 2),
    "roll by a block and 3": lambda x: jnp.roll(x, -11, 2),
    "flip": lambda x: jnp.flip(x, 2),
    "pad by 1": pad("constant"),
    "pad by 1, of a number": pad("constant", constant_values=2.5),
    "cut off 2": lambda x: x[:, :, 2:-2],
    "part": lambda x: x[:, :, 1:-1],
    "first part": lambda x: x[:, :, :60],
    "every other row": lambda x: x[:, :, 1::2],
    "reflected": pad("reflect"),
    "repeated": pad("edge"),
    "the other end": pad("wrap"),
}
ALONG: dict[str, tuple[Op, int]] = {
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 2), 28_672),
    "softmax": (lambda x: jax.nn.softmax(x, 2), 28_672),
    "layer norm": (lambda x: jax.nn.standardize(x, 2), 28_672),
    "argmax": (lambda x: jnp.argmax(x, 2), 28_672),
    "top-k, k = 3": (lambda x: lax.top_k(x.swapaxes(2, 3), 3), 57_344),
    "cumsum": (lambda x: jnp.cumsum(x, 2), 57_344),
    "sort": (lambda x: jnp.sort(x, 2), 114_688),
}
"""Ops along the cut dim, and the bytes that a device of shardc's sends (decision 84)."""
SCALAR = 4
SIZES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "s64": 8}
COLLECTIVE = re.compile(
    r"= (?P<result>[^=]*?) (?P<kind>all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\("
)
TENSOR = re.compile(r"(f32|s32|u32|pred|s64)\[([\d,]*)\]")


def sent(op: Op) -> Counter[str]:
    """Return the bytes that a device sends, by kind of collective.

    JAX takes no uneven shardings of results: of such a result the sum is taken, by an all-reduce of 4 bytes,
    which is left out, and XLA is free to cut the result itself.
    """
    mesh = Mesh(jax.devices(), ("rows",))
    image = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
    shape = jax.tree.leaves(jax.eval_shape(op, image))[0].shape
    cut, whole = NamedSharding(mesh, PartitionSpec(None, None, "rows")), NamedSharding(mesh, PartitionSpec())
    if len(shape) == 4 and shape[2] % WAYS == 0:
        jitted = jax.jit(op, in_shardings=cut, out_shardings=cut)
    elif len(shape) == 4:
        jitted = jax.jit(lambda x: jnp.square(op(x)).sum(), in_shardings=cut, out_shardings=whole)
    else:
        jitted = jax.jit(op, in_shardings=cut, out_shardings=whole)
    found = Counter[str]()
    for line in jitted.lower(image).compile().as_text().splitlines():
        if match := COLLECTIVE.search(re.sub(r"/\*.*?\*/", "", line)):
            found[match["kind"]] += _bytes(match["kind"], match["result"])
    return found


def _bytes(kind: str, result: str) -> int:
    tensors = TENSOR.findall(result)
    size = sum(SIZES[dtype] * prod(int(n) for n in dims.split(",") if n) for dtype, dims in tensors)
    if size == SCALAR:
        return 0
    if kind == "collective-permute":
        return size
    if kind == "all-reduce":
        return 2 * size * (WAYS - 1) // WAYS
    if kind == "reduce-scatter":
        return size * (WAYS - 1)
    return size * (WAYS - 1) // WAYS


def rows() -> Iterator[tuple[str, int, int]]:
    """Yield an op's name, XLA's bytes and shardc's."""
    from test_space import CASES, ROW

    for name, (_, forward, _) in CASES.items():
        yield name, sum(sent(OPS[name]).values()), forward * ROW
    for name, (op, ours) in ALONG.items():
        yield name, sum(sent(op).values()), ours


def main() -> None:
    print("| op | XLA | shardc |\n|---|--:|--:|")
    for name, xla, ours in rows():
        print(f"| {name} | {xla:,} | {ours:,} |{' above' if ours > xla else ''}", flush=True)


if __name__ == "__main__":
    main()
