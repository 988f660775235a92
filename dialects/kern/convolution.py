"""``kern.convolution``: a convolution, or a transposed one, in a kernel's body. Level 4."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import torch
from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At, attributes
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Result, Site
from shardc.dialects.kern.dialect import Kern
from shardc.dialects.kern.types import read_builtin

TRANSPOSED = "transposed"
NUMBERS = ("stride", "padding", "dilation")
"""Attributes with a number for each dim of pixels."""


class ConvolutionOp(Op, dialect=Kern, name="convolution", traits=[ext.Pure]):
    """Convolves images [N, C, pixels...] of f32, with one to three dims of pixels, as ``aten.convolution``.

    ``weight`` is [C', C / groups, window...], and if ``transposed`` [C, C' / groups, window...]; ``bias``
    (optional) is [C']. ``stride``, ``padding`` and ``dilation`` have a number for each dim of pixels. The
    result's pixels are as many as the numbers give; those of a transposed convolution may be more, by less
    than the stride or the dilation (``output_padding``).

    ``%out = "kern.convolution"(%input, %weight) {stride = [1, 1], padding = [0, 0], dilation = [1, 1],
    groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>``
    """

    out: Result
    input: Operand
    weight: Operand
    stride: ir.ArrayAttr
    padding: ir.ArrayAttr
    dilation: ir.ArrayAttr
    groups: ir.IntegerAttr
    bias: Operand | None = None

    def check(self, site: Site) -> None:
        if len(site.op.results) != 1 or not all(map(site.has, (*NUMBERS, "groups"))):
            raise LeftToMlir
        convolution_of(site.op)


@dataclass(frozen=True)
class Convolution:
    """An op as read: its tensors, and the numbers of its attributes."""

    input: TensorType
    weight: TensorType
    out: TensorType
    has_bias: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    groups: int

    @property
    def window(self) -> tuple[int, ...]:
        """Return the sizes of a window."""
        return self.weight.shape[2:]

    @property
    def channels(self) -> tuple[int, int]:
        """Return the channels of a group: the input's and the result's."""
        return self.input.shape[1] // self.groups, self.out.shape[1] // self.groups


def convolution_of(op: ir.Operation) -> Convolution:
    """Read and check an op. Raises Illegal."""
    roles = ("input", "weight", "bias")[: len(op.operands)]
    types: dict[str, TensorType] = {}
    for role, value in zip((*roles, "out"), (*op.operands, *op.results), strict=True):
        type_ = read_builtin(value.type)
        if type_ is None or not type_.is_static or type_.dtype != torch.float32:
            raise Illegal(f"{role} is {value.type}; it must be a tensor of f32 and known sizes")
        types[role] = type_
    stride, padding, dilation = (_numbers(op.attributes[name]) for name in NUMBERS)
    found = Convolution(
        types["input"],
        types["weight"],
        types["out"],
        "bias" in types,
        stride,
        padding,
        dilation,
        TRANSPOSED in op.attributes,
        ir.IntegerAttr(op.attributes["groups"]).value,
    )
    _check(found, types)
    return found


def _numbers(attribute: ir.Attribute) -> tuple[int, ...]:
    return tuple(ir.IntegerAttr(number).value for number in ir.ArrayAttr(attribute))


def _check(spec: Convolution, types: dict[str, TensorType]) -> None:
    rank = len(spec.input.shape) - 2
    if not 1 <= rank <= 3:
        raise Illegal(f"input is {spec.input}; it must have one to three dims of pixels")
    for name in NUMBERS:
        if len(numbers := getattr(spec, name)) != rank or min(numbers) < (name != "padding"):
            raise Illegal(f"{name} is {list(numbers)}; it must be {rank} numbers, positive or 0 for padding")
    batch, channels = spec.input.shape[:2]
    if spec.groups < 1 or channels % spec.groups:
        raise Illegal(f"groups is {spec.groups}; input has {channels} channels")
    first, second, *window = spec.weight.shape
    made = second * spec.groups if spec.transposed else first
    given = first if spec.transposed else second * spec.groups
    if given != channels or len(window) != rank or made % spec.groups or 0 in window:
        raise Illegal(f"weight is {spec.weight}; it does not fit input {spec.input} in {spec.groups} groups")
    if "bias" in types and types["bias"].shape != (made,):
        raise Illegal(f"bias is {types['bias']}; it must have {made} elements")
    fits = spec.out.shape[:2] == (batch, made) and len(spec.out.shape) == len(spec.input.shape)
    if not fits or not is_convolution(spec):
        raise Illegal(f"out is {spec.out}, which is not such a convolution of input {spec.input}")


def is_convolution(spec: Convolution) -> bool:
    """Return whether the result has as many pixels as the numbers give, or may have."""
    sizes = spec.input.shape[2:], spec.out.shape[2:], spec.window
    each = zip(*sizes, spec.stride, spec.padding, spec.dilation, strict=True)
    return all(_fits(spec.transposed, *dim) for dim in each)


def _fits(transposed: bool, size: int, made: int, window: int, step: int, pad: int, apart: int) -> bool:
    reach = apart * (window - 1) + 1
    if transposed:
        return 0 <= made - ((size - 1) * step - 2 * pad + reach) < max(step, apart)
    return made == (size + 2 * pad - reach) // step + 1 and made > 0


def convolution(
    operands: Sequence[ir.Value],
    out: ir.Type,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *,
    transposed: bool = False,
    **at: Unpack[At],
) -> ir.Value:
    """Build the op and return out. ``operands`` are input, weight and optionally bias."""
    context = at["loc"].context
    numbers = zip(NUMBERS, (stride, padding, dilation), strict=True)
    given = attributes(context, groups=groups, **dict(numbers))
    if transposed:
        given[TRANSPOSED] = ir.UnitAttr.get(context)
    name = ConvolutionOp.OPERATION_NAME
    return ir.Operation.create(name, [out], list(operands), given, **at).results[0]
