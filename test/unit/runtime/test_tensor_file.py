"""Our reader of safetensors files against the library's writer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

from shardc.runtime.errors import BadArtefact
from shardc.runtime.tensor_file import DTYPES, TensorFile


def sample(dtype: torch.dtype) -> torch.Tensor:
    values = torch.arange(24).view(4, 6) % 7
    return (values > 3) if dtype == torch.bool else values.float().to(dtype)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = {str(dtype): sample(dtype) for dtype in DTYPES.values()}
    extra = {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "odd": torch.ones(3, dtype=torch.uint8)}
    save_file({**made, **extra}, tmp_path / "x.safetensors", metadata={"a": "b"})
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype(path: Path, dtype: torch.dtype) -> None:
    file = TensorFile(path)
    name = str(dtype)
    assert (file.shape(name), file.dtype(name)) == ((4, 6), dtype)
    assert torch.equal(file.mapped(name).view(torch.uint8), sample(dtype).view(torch.uint8))
    block = file.read(name, (slice(1, 3), slice(2, 4)))
    assert torch.equal(block.view(torch.uint8), sample(dtype)[1:3, 2:4].contiguous().view(torch.uint8))


def test_scalars_and_empty_tensors(path: Path) -> None:
    file = TensorFile(path)
    assert file.read("scalar").item() == 2.5
    assert file.read("empty").shape == (0, 3)
    with pytest.raises(KeyError):
        file.read("none")


def test_a_block_is_a_copy(path: Path) -> None:
    file = TensorFile(path)
    file.read("scalar").fill_(7)
    assert file.read("scalar").item() == 2.5
    file.mapped("scalar").fill_(7)  # mapped memory is private to the process
    assert TensorFile(path).read("scalar").item() == 2.5


def test_no_tensors(tmp_path: Path) -> None:
    (tmp_path / "none.safetensors").write_bytes(save({}))
    assert TensorFile(tmp_path / "none.safetensors").names == []


def test_data_at_an_odd_address(tmp_path: Path) -> None:
    """The format's header may be of any length, though the library pads it."""
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    header += b" " * (7 - len(header) % 4)
    data = torch.tensor([1.0, 2.0]).numpy().tobytes()
    (tmp_path / "odd.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    assert len(header) % 4
    assert TensorFile(tmp_path / "odd.safetensors").read("a").tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("length", "problem"),
    [(4, "header is truncated"), (40, "header is truncated"), (-1, r"holds \d+ bytes of \d+")],
)
def test_truncated(path: Path, length: int, problem: str) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BadArtefact, match=problem):
        TensorFile(path)


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(BadArtefact, match="missing"):
        TensorFile(tmp_path / "x.safetensors")
    (tmp_path / "y.safetensors").write_bytes((4).to_bytes(8, "little") + b"{abc")
    with pytest.raises(BadArtefact, match="not JSON"):
        TensorFile(tmp_path / "y.safetensors")
