"""Tensor types: conversion between ``!torch.vtensor<[2,3],f32>`` and a shape with a ``torch.dtype``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import NamedTuple, cast

import torch
from torch_mlir import ir

_DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i1": torch.bool,
    "ui8": torch.uint8,
    "si8": torch.int8,
    "si16": torch.int16,
    "si32": torch.int32,
    "si64": torch.int64,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_TENSOR = re.compile(r"!torch\.vtensor<\[([\d,?]*)\],(.+)>")


def is_known(dtype: torch.dtype) -> bool:
    """Return whether shardc has a tensor type for ``dtype``. Float8 dtypes, for example, have none."""
    return dtype in _NAMES


class TensorType(NamedTuple):
    """The type of one tensor value: its shape in elements and its dtype.

    A size that is known only at run time is ``?`` in IR and None here; only graphs of ``torch.compile`` have
    such sizes. Fusion represents them as :class:`shardc.dialects.kern.size.Size`.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def is_static(self) -> bool:
        """True if every size is a number or a symbolic size, that is, none is None."""
        return None not in self.shape

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.numel * self.dtype.itemsize

    @staticmethod
    def of(sizes: Iterable[object], dtype: torch.dtype) -> TensorType:
        """Return the type for ``sizes``, of which some may be None or symbolic."""
        return TensorType(cast("tuple[int, ...]", tuple(sizes)), dtype)

    def with_shape(self, sizes: Iterable[object]) -> TensorType:
        """Return the type with other ``sizes``, given as to :meth:`of`."""
        return TensorType.of(sizes, self.dtype)

    def scaled(self, dim: int, times: int, ways: int = 1) -> TensorType:
        """Return the type with the size of dim ``dim`` multiplied by ``times`` and divided by ``ways``."""
        shape = self.shape
        return self.with_shape((*shape[:dim], shape[dim] * times // ways, *shape[dim + 1 :]))

    def __str__(self) -> str:
        sizes = [str(size) if isinstance(size, int) else "?" for size in self.shape]
        return f"!torch.vtensor<[{','.join(sizes)}],{_NAMES[self.dtype]}>"


class Order(NamedTuple):
    """A dense layout of a tensor with symbolic sizes: its ``dims``, from the most major to the most minor."""

    dims: tuple[int, ...]


@lru_cache(maxsize=65536)
def _parse(text: str) -> TensorType | None:
    match = _TENSOR.fullmatch(text)
    if match is None:
        return None
    dims, dtype = match.groups()
    return TensorType.of((None if d == "?" else int(d) for d in dims.split(",") if d), _DTYPES[dtype])


def read_type(type_: ir.Type) -> TensorType | None:
    """Return the tensor type of an MLIR type, or None if it is not a ranked value tensor.

    Torch-MLIR's bindings have no accessors for ``vtensor``, so the printed type is parsed, once per distinct
    type.
    """
    return _parse(str(type_))


def write_type(type_: TensorType, context: ir.Context | None = None) -> ir.Type:
    return ir.Type.parse(str(type_), context)
