"""Benchmark candidates for convolutions: each form, on generated tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf

import torch

from shardc.backends.benchmark.benchmark import Candidate, decide
from shardc.cost.work import MEASURED_CONVOLUTION, SMALL_FLOPS
from shardc.dialects.aten.call import leaves, replace_leaves
from shardc.dialects.aten.schema import overload
from shardc.dialects.aten.types import TensorType
from shardc.passes.extern.convolution import FIRST, FORMS, IMAGES, LAST, Convolution, Form


def measured_seconds(convolution: Convolution) -> Mapping[str, float]:
    """Return the seconds of a convolution's forms on this machine; none for a small convolution.

    Large ones are measured with a smaller batch. Copies are measured only if channels last win without them.
    """
    if convolution.flops < SMALL_FLOPS:
        return {}
    small = convolution.shrunk(MEASURED_CONVOLUTION)
    every = candidates(small)
    found = decide(str(small), every[:2]).seconds
    is_faster = found.get(str(Form()), inf) < found.get(str(FIRST), 0.0)
    return decide(str(small), every).seconds if is_faster else found


def candidates(convolution: Convolution) -> list[Candidate]:
    """Return a candidate for each form: the program's, then channels last without copies, then the others."""
    return [Candidate(str(form), partial(_build, convolution, form)) for form in FORMS]


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
