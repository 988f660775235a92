"""Benchmark candidates for convolutions: each form, on generated tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf, prod

import torch
from torch_mlir import ir
from torch_mlir.dialects import func

from shardc.backends.benchmark.benchmark import Candidate, decide
from shardc.backends.cpu.compile import build_library, versions
from shardc.backends.cpu.convolution.plan import is_planned
from shardc.cost.work import MEASURED_CONVOLUTION, SMALL_FLOPS
from shardc.dialects.aten.call import OpCall, leaves, replace_leaves
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import TensorType
from shardc.dialects.context import new_context
from shardc.dialects.dist.build import At
from shardc.dialects.kern.convolution import is_convolution
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.extern.convolution import (
    DIRECT,
    FIRST,
    FORMS,
    IMAGES,
    LAST,
    Convolution,
    Form,
    beside,
    direct,
)
from shardc.passes.fuse.structured.convolution import spec_of, write_convolution
from shardc.runtime.kernels.library import Library

LAST_FORM = Form()
NAME = "convolution"


def measured_seconds(convolution: Convolution) -> Mapping[str, float]:
    """Return the seconds of a convolution's forms on this machine; none for a small convolution.

    Large ones are measured with a smaller batch, of an image for each thread at least. Copies are measured
    only if channels last win without them.
    """
    if convolution.flops < SMALL_FLOPS:
        return {}
    small = convolution.shrunk(MEASURED_CONVOLUTION, torch.get_num_threads())
    every = candidates(small)
    plain = [each for each in every if each.name in map(str, (FIRST, LAST_FORM, DIRECT))]
    found = decide(str(small), plain).seconds
    last, *others = (found.get(str(form), inf) for form in (LAST_FORM, FIRST, DIRECT))
    if last >= min(others):
        return found
    return found | decide(str(small), [each for each in every if each.name != str(DIRECT)]).seconds


def candidates(convolution: Convolution) -> list[Candidate]:
    """Return a candidate for each form: the program's, then channels last without copies, then the others."""
    forms = [form for form in FORMS if not form.is_direct or _has_kernel(convolution)]
    return [
        Candidate(str(DIRECT), partial(_build_direct, convolution), versions())
        if form.is_direct
        else Candidate(str(form), partial(_build, convolution, form))
        for form in forms
    ]


def _has_kernel(convolution: Convolution) -> bool:
    """Return whether shardc has a kernel for a convolution of f32, or for a backward's input gradient."""
    call = convolution.call
    if not convolution.makes_image or any(t.dtype != torch.float32 for t in call.tensors):
        return False
    spec = spec_of(direct(call))
    skips = prod(spec.window) == 1 and prod(spec.stride) > 1  # it would copy pixels that no window reads
    return is_planned(spec) and is_convolution(spec) and not skips


def _build_direct(convolution: Convolution) -> Callable[[], object]:
    call, rest = direct(convolution.call), beside(convolution.call)
    compute = _built_kernel(call)
    if rest is None:
        return compute
    more = _build(Convolution(rest), FIRST)
    return lambda: (compute(), more())


def _built_kernel(call: OpCall) -> Callable[[], object]:
    tensors = [torch.full(t.shape, 0.5) for t in call.tensors]
    with new_context() as context, ir.Location.unknown():
        module, out = ir.Module.create(), call.result
        types = [ir.Type.parse(str(t), context) for t in call.tensors]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("convolution", (types, []))
        block = function.add_entry_block()
        at = At(loc=ir.Location.unknown(), ip=ir.InsertionPoint(block))
        builtin = [builtin_type(t, context) for t in (*call.tensors, out)]
        body, _, _ = kernel(NAME, list(block.arguments), builtin[:-1], [out], **at)
        inside = At(loc=at["loc"], ip=ir.InsertionPoint(body))
        yield_values([write_convolution(call, list(body.arguments), builtin[-1], **inside)], **inside)
        func.ReturnOp([], ip=ir.InsertionPoint(block))
        compute = Library(build_library(module)).kernel(NAME, [(out.shape, out.dtype)])
    return lambda: compute(*tensors)


def _build(convolution: Convolution, form: Form) -> Callable[[], object]:
    call = convolution.call
    count = len(IMAGES[call.target])
    tensors = [
        torch.full(t.shape, 0.5, dtype=t.dtype) for t in leaves(call.args) if isinstance(t, TensorType)
    ]
    if form.is_last:
        images = [t.movedim(1, -1) for t in tensors[:count]]
        tensors[:count] = images if form.given_first else [t.contiguous() for t in images]
    rest = iter(tensors)
    args = replace_leaves(call.args, lambda leaf: next(rest) if isinstance(leaf, TensorType) else leaf)
    run = overload(LAST[call.target] if form.is_last else call.target)

    def compute() -> object:
        made = run(*args)
        if form.is_last and form.made_first and convolution.makes_image:
            image = made if isinstance(made, torch.Tensor) else made[0]
            return made, image.movedim(-1, 1).contiguous()
        return made

    return compute
