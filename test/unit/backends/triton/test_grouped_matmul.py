"""Matrix products of groups as Triton kernels: in the interpreter against a loop in f64, and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
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
from shardc.dialects.kern.grouped_matmul import SHAPES, grouped_matmul
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values

from .contractions import interpret
from .programs import BOUNDS

F32, BF16 = torch.float32, torch.bfloat16
SMALL = {"block_m": 16, "block_n": 16, "block_k": 16, "warps": 1, "stages": 2}
STRAIGHT = {"m": (), "n": ("right",), "k": ("left",)}
"""By form, what is turned so that groups begin at rows of both factors: as tensor descriptors need it."""
FORMS = {shared: (left, right, out) for left, right, out, shared in SHAPES.values()}
"""The dims of left, right and out by the one that the groups share."""
TURNED = [(), ("left",), ("right",), ("left", "right")]


def shapes(shared: str, sizes: dict[str, int], turned: tuple[str, ...] = ()) -> list[tuple[int, ...]]:
    """Of left, right and out in memory."""
    found = []
    for role, dims in zip(("left", "right", "out"), FORMS[shared], strict=True):
        shape = [sizes[dim] for dim in dims]
        found.append(tuple([*shape[:-2], shape[-1], shape[-2]] if role in turned else shape))
    return found


def emitted(
    shared: str,
    sizes: dict[str, int],
    dtype: torch.dtype,
    turned: tuple[str, ...] = (),
    target: str = "sm_90",
    *,
    tf32: bool = False,
    **config: int,
) -> Emitted:
    left, right, out = (TensorType(shape, dtype) for shape in shapes(shared, sizes, turned))
    given = [left, right, TensorType((sizes["g"],), torch.int32)]
    with new_context() as context, ir.Location.unknown() as loc:
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            block = func.FuncOp("f", ([write_type(t, context) for t in given], [])).add_entry_block()
        ip, arguments = ir.InsertionPoint(block), [builtin_type(t, context) for t in given]
        name = "_".join(("grouped", shared, *turned))
        body, _, _ = kernel(name, list(block.arguments), arguments, [out], values=config, loc=loc, ip=ip)
        inside = ir.InsertionPoint(body)
        made = grouped_matmul(list(body.arguments), builtin_type(out, context), turned, loc=loc, ip=inside)
        yield_values([made], loc=loc, ip=inside)
        (found,) = kernels(module)
        return emit_kernel(found, GPUS[target], tf32=tf32)


def expected(left: Tensor, right: Tensor, ends: list[int], shared: str) -> Tensor:
    """In f64; what no group has is 0."""
    left, right, starts = left.double(), right.double(), [0, *ends[:-1]]
    spans = [slice(start, max(start, end)) for start, end in zip(starts, ends, strict=True)]
    if shared == "k":
        return torch.stack([left[:, span] @ right[span] for span in spans])
    if shared == "n":
        return expected(right.mT, left.mT, ends, "m").mT
    out = torch.zeros(len(left), right.shape[2], dtype=torch.float64)
    for group, span in enumerate(spans):
        out[span] = left[span] @ right[group]
    return out


def check(
    shared: str,
    sizes: dict[str, int],
    ends: list[int],
    dtype: torch.dtype,
    turned: tuple[str, ...] = (),
    **config: int,
) -> None:
    torch.manual_seed(0)
    sizes = {**sizes, "g": len(ends)}
    made = emitted(shared, sizes, dtype, turned, **config)
    *given, out = shapes(shared, sizes, turned)
    inputs = [torch.randn(shape).to(dtype) for shape in given]
    (got,) = interpret(made, [*inputs, torch.tensor(ends, dtype=torch.int32)], [(out, dtype)])
    plain = [t.mT if role in turned else t for role, t in zip(("left", "right"), inputs, strict=True)]
    wanted, bound = expected(*plain, ends, shared), BOUNDS[dtype]
    torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound * wanted.abs().max().item())


RAGGED = {"m": 37, "n": 43, "k": 29}
ALIGNED = {"m": 40, "n": 24, "k": 56}
"""Rows of 16 bytes, for tensor descriptors; tiles cross every end all the same."""
ENDS = {
    "whole": [0.2, 0.5, 1],
    "empty": [0, 0.4, 0.4, 0.4, 1, 1],
    "rest": [0.3, 0.6],
    "none": [0, 0],
    "one": [1],
}
"""Where groups end, as parts of what they share: all of it; some are empty; nobody has the last; all are
empty.
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("dtype", [F32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("shared", FORMS)
def test_values(shared: str, dtype: torch.dtype, ends: list[float]) -> None:
    check(shared, RAGGED, [int(part * RAGGED[shared]) for part in ends], dtype, **SMALL)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("shared", FORMS)
def test_values_by_descriptors(shared: str, dtype: torch.dtype, ends: list[float]) -> None:
    check(shared, ALIGNED, [int(part * ALIGNED[shared]) for part in ends], dtype, STRAIGHT[shared], **SMALL)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("turned", TURNED[1:], ids=str)
@pytest.mark.parametrize("shared", FORMS)
@pytest.mark.parametrize("sizes", [RAGGED, ALIGNED], ids=["by pointers", "by descriptors"])
def test_operands_that_lie_the_other_way_round(
    sizes: dict[str, int], shared: str, turned: tuple[str, ...]
) -> None:
    check(shared, sizes, [5, 5, 22], F32, turned, **SMALL)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", [RAGGED, ALIGNED], ids=["by pointers", "by descriptors"])
@pytest.mark.parametrize("shared", FORMS)
def test_a_nan_stays_in_its_group(shared: str, sizes: dict[str, int]) -> None:
    """Though tiles of the groups beside it read it."""
    sizes, ends, turned = {**sizes, "g": 3}, [7, 9, sizes[shared]], STRAIGHT[shared]
    *given, out = shapes(shared, sizes, turned)
    inputs = [torch.randn(shape) for shape in given]
    for role, dims, tensor in zip(("left", "right"), FORMS[shared][:2], inputs, strict=True):
        plain = tensor.mT if role in turned else tensor
        (tensor[1:2] if "g" in dims else plain.movedim(dims.index(shared), 0)[7:9]).fill_(torch.nan)
    ends_given = torch.tensor(ends, dtype=torch.int32)
    (got,) = interpret(emitted(shared, sizes, F32, turned, **SMALL), [*inputs, ends_given], [(out, F32)])
    groups = got if shared == "k" else torch.tensor_split(got, ends[:-1], dim=FORMS[shared][2].index(shared))
    assert groups[0].isfinite().all() and groups[1].isnan().all() and groups[2].isfinite().all()


def test_which_have_descriptors() -> None:
    """Targets with the hardware, where rows are of multiples of 16 bytes and groups begin at one."""
    for shared, turned in STRAIGHT.items():
        across = tuple({"left", "right"} - {*turned})
        for sizes, way, fits in ((ALIGNED, turned, True), (RAGGED, turned, False), (ALIGNED, across, False)):
            texts = {t: emitted(shared, {**sizes, "g": 3}, BF16, way, t, **SMALL).text for t in GPUS}
            found = {t for t, text in texts.items() if text.count("tl.make_tensor_descriptor(") == 2}
            assert found == ({"sm_90", "sm_100"} if fits else set()), (shared, way)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shared", FORMS)
def test_values_with_tiles_of_the_model(shared: str) -> None:
    check(shared, {"m": 96, "n": 80, "k": 64}, [3, 40, 40, 60], F32)


@pytest.mark.parametrize("shared", FORMS)
def test_ends_outside_of_the_tensor_are_its_ends(shared: str) -> None:
    """No other memory is touched."""
    sizes = {"m": 32, "n": 32, "k": 32, "g": 3}
    *given, out = shapes(shared, sizes)
    inputs = [torch.randn(shape) for shape in given]
    ends = torch.tensor([-5, 20, 1000], dtype=torch.int32)
    (got,) = interpret(emitted(shared, sizes, F32, **SMALL), [*inputs, ends], [(out, F32)])
    torch.testing.assert_close(got.double(), expected(*inputs, [0, 20, 32], shared), rtol=1e-5, atol=1e-4)


@pytest.mark.slow
def test_equal_to_pytorch() -> None:
    """``torch._grouped_mm`` of all forms, on the CPU."""
    torch.manual_seed(0)
    ends = torch.tensor([16, 16, 40, 64], dtype=torch.int32)
    sizes = {"m": 64, "n": 64, "k": 64, "g": 4}
    for shared in FORMS:
        *given, out = shapes(shared, sizes)
        left, right = (torch.randn(shape).to(BF16) for shape in given)
        (got,) = interpret(emitted(shared, sizes, BF16), [left, right, ends], [(out, BF16)])
        torch.testing.assert_close(got, torch._grouped_mm(left, right, offs=ends), rtol=2e-2, atol=2e-2)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_compiled(target: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """An expert layer of Mixtral's size, forward and backward: matrix instructions, no spills."""
    sizes = {"m": 8192, "n": 14336, "k": 4096, "g": 8}
    forms = [("m", ()), ("m", ("right",)), ("n", ()), ("k", ("left",)), ("k", ())]
    made = [emitted(shared, sizes, dtype, turned, target, tf32=True) for shared, turned in forms]
    for compiled in compile_kernels(made, [GPUS[target]], tmp_path, processes=1):
        assert compiled.error is None, compiled.error
        (found,) = compiled.functions
        assert found.shared_bytes <= GPUS[target].shared_bytes and found.registers <= GPUS[target].registers
        assert found.matrix_ops and found.spill_bytes == 0 and found.local_accesses == 0, found
