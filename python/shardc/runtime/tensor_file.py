"""Reader of slices of safetensors files, with torch alone.

The format is: 8 bytes of little-endian header length, a JSON header ``{name: {dtype, shape, data_offsets}}``,
and the data. The file is mapped into memory, so a slice reads only its own bytes.
"""

import json
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from .check import AGAIN
from .errors import BadArtefact

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


class TensorFile:
    """Tensors of one safetensors file. Raises BadArtefact if the file is missing or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                self._start = 8 + int.from_bytes(file.read(8), "little")
                if not 8 < self._start <= size:
                    raise _broken(path, "its header is truncated")
                self._header = json.loads(file.read(self._start - 8))
        except FileNotFoundError:
            raise _broken(path, "it is missing") from None
        except ValueError as error:
            raise _broken(path, f"its header is not JSON ({error})") from None
        self._header.pop("__metadata__", None)
        end = max((e["data_offsets"][1] for e in self._header.values()), default=0)
        if self._start + end > size:
            raise _broken(path, f"it holds {size} bytes of {self._start + end}")
        self._bytes = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)

    @property
    def names(self) -> list[str]:
        return list(self._header)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._header[name]["shape"])

    def dtype(self, name: str) -> torch.dtype:
        return DTYPES[self._header[name]["dtype"]]

    def mapped(self, name: str) -> Tensor:
        """Return the whole tensor, still in the mapped file. Raises KeyError for an unknown name."""
        low, high = self._header[name]["data_offsets"]
        data = self._bytes[self._start + low : self._start + high]
        dtype = self.dtype(name)
        if (self._start + low) % dtype.itemsize:
            data = data.clone()  # a view needs an aligned offset, which the format does not guarantee
        shape = self.shape(name)
        return data.view(dtype).view(shape) if prod(shape) else torch.empty(shape, dtype=dtype)

    def read(self, name: str, slices: tuple[slice, ...] = ()) -> Tensor:
        """Return a copy of one block of a tensor."""
        return self.mapped(name)[slices].clone(memory_format=torch.contiguous_format)


def _broken(path: Path, why: str) -> BadArtefact:
    return BadArtefact(f"{path.name} can't be read: {why}", str(path), AGAIN)
