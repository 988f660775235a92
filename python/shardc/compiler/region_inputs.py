"""Tensors that the program of a region is measured on."""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.dialects.kern.strides import argument_strides


def region_inputs(function: ir.Operation, device: torch.device) -> list[torch.Tensor]:
    """Tensors for a function's arguments, laid out as it says; PyTorch's generators stay as they are.

    Zeros for what is no floating-point number; else halves, and on a GPU, whose clock depends on what it
    multiplies, small normal numbers.
    """
    strides = {
        ir.BlockArgument(v).arg_number: tuple(found) for v, found in argument_strides(function).items()
    }
    generator = None if device.type == "cpu" else torch.Generator(device).manual_seed(0)
    made = []
    for number, argument in enumerate(function.regions[0].blocks[0].arguments):
        type_ = read_type(argument.type)
        assert type_ is not None
        tensor = torch.empty(type_.shape, dtype=type_.dtype, device=device)
        if number in strides:
            tensor = torch.empty_strided(type_.shape, strides[number], dtype=type_.dtype, device=device)
        if not type_.dtype.is_floating_point:
            made.append(tensor.zero_())
        elif generator is None:
            made.append(tensor.fill_(0.5))
        else:
            made.append(tensor.normal_(0, 0.1, generator=generator))
    return made
