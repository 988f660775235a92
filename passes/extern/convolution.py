"""Forms of a convolution: a library's, with channels first or last, or shardc's own kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from shardc.cost.work import flops
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import position
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.structured.convolution import KERNEL

FORWARD, BACKWARD = "aten.convolution", "aten.convolution_backward"
LAST = {FORWARD: "shardc.convolution_last", BACKWARD: "shardc.convolution_last_backward"}
"""For each convolution, the operator on images whose channels are the last dim."""
IMAGES = {FORWARD: ("input",), BACKWARD: ("grad_output", "input")}
"""Operands that are images; an image's dims are [N, C, pixels...]."""
DTYPES = (torch.float32, torch.bfloat16)
"""Dtypes for which oneDNN computes convolutions."""


@dataclass(frozen=True)
class Form:
    """How a convolution is computed, and which images are copied from or to the program's layout.

    ``is_last``: with channels last. ``given_first``: operands have channels first, and are copied.
    ``made_first``: the result is copied to have channels first. ``is_direct``: by a kernel of shardc's own,
    with channels first; of a backward, the input's gradient.
    """

    is_last: bool = True
    given_first: bool = False
    made_first: bool = False
    is_direct: bool = False

    def __str__(self) -> str:
        if self.is_direct:
            return "direct"
        if not self.is_last:
            return "channels first"
        copied = [name for name in ("given_first", "made_first") if getattr(self, name)]
        return ", ".join(["channels last", *copied])


FIRST = Form(is_last=False)
DIRECT = Form(is_last=False, is_direct=True)
FORMS = (FIRST, *(Form(True, given, made) for given in (False, True) for made in (False, True)), DIRECT)


@dataclass(frozen=True)
class Convolution:
    """A convolution or its backward, with tensors replaced by their types. ``call``: the ATen call."""

    call: OpCall

    @property
    def flops(self) -> float:
        """Floating-point operations of its products."""
        return flops(self.call)

    @property
    def images(self) -> list[TensorType]:
        """The operands that are images: the input, or the gradient of the result and the input."""
        return [self.call[name] for name in IMAGES[self.call.target]]

    @property
    def makes_image(self) -> bool:
        """Return whether the first result is an image: False if no gradient of the input is needed."""
        return self.call.results[0] is not None

    def shrunk(self, most: float, threads: int = 1) -> Convolution:
        """Return the convolution of a smaller batch, of at most ``most`` FLOP if a batch of 1 has so few.

        It has an image for each of the ``threads`` that compute it, if this one has: forms differ in how they
        divide a batch.
        """
        found = self
        while found.flops > most and (batch := found.images[0].shape[0]) > threads:
            found = found._with_batch(max(threads, (batch + 1) // 2))
        return found

    def _with_batch(self, size: int) -> Convolution:
        call, images = self.call, self.images
        args = tuple(_resized(a, size) if any(a is image for image in images) else a for a in call.args)
        made, *rest = call.results
        return Convolution(
            replace(call, args=args, results=(made and _resized(made, size), *rest)),
        )

    def __str__(self) -> str:
        return f"{self.call.target} {', '.join(map(str, self.call.args))}"


def _resized(type_: TensorType, size: int) -> TensorType:
    return type_.with_shape((size, *type_.shape[1:]))


def direct(call: OpCall) -> OpCall:
    """Return the call that a kernel computes: the convolution, or that of a backward's input gradient.

    The gradient of a convolution's input is a transposed convolution of the result's, and the reverse.
    """
    if call.target == FORWARD:
        return replace(call, target=KERNEL)
    grad, made, weight = call["grad_output"], call["input"], call["weight"]
    pixels = list(zip(made.shape[2:], grad.shape[2:], weight.shape[2:], strict=True))
    numbers = (tuple(call[name]) for name in ("stride", "padding", "dilation"))
    stride, padding, dilation = (n * len(pixels) if len(n) == 1 else n for n in numbers)
    extra = (0,) * len(pixels)
    if not call["transposed"]:
        dims = zip(pixels, stride, padding, dilation, strict=True)
        extra = tuple(size - ((g - 1) * s - 2 * p + d * (k - 1) + 1) for (size, g, k), s, p, d in dims)
    settings = (stride, padding, dilation, not call["transposed"], extra, call["groups"])
    return OpCall(KERNEL, (grad, weight, None, *settings), call.results[:1])


def beside(call: OpCall) -> OpCall | None:
    """Return the backward of the weight and the bias alone; None if there is none."""
    if call.target == FORWARD or not any(call["output_mask"][1:]):
        return None
    at = position(BACKWARD, "output_mask")
    args = (*call.args[:at], (False, *call.args[at][1:]), *call.args[at + 1 :])
    return replace(call, args=args, results=(None, *call.results[1:]))


def is_considered(call: OpCall) -> bool:
    """Return whether a call is a convolution of known sizes, with channels, that oneDNN may compute."""
    if call.target not in LAST:
        return False
    tensors = [*call.tensors, *(r for r in call.results if r is not None)]
    if any(not t.is_static or not all(type(n) is int and n > 0 for n in t.shape) for t in tensors):
        return False
    images = [call[name] for name in IMAGES[call.target]]
    has_pixels = 3 <= len(images[0].shape) <= 5
    return has_pixels and images[0].dtype in DTYPES and max(t.shape[1] for t in images) > 1
