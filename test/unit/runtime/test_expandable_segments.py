"""What a step on a GPU tells PyTorch's allocator. No GPU is needed: the setting is recorded."""

from __future__ import annotations

import pytest
import torch

from shardc.runtime import torch_private
from shardc.runtime.comm import connect as connecting
from shardc.runtime.comm.mesh import Mesh
from shardc.runtime.memory import expand_segments


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings passed to the allocator, in an environment without any."""
    found: list[str] = []
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.setitem(vars(torch_private), "set_allocator_settings", found.append)
    monkeypatch.setattr(torch_private, "optional", lambda name: vars(torch_private)[name])
    return found


def test_segments_expand(told: list[str]) -> None:
    expand_segments()
    assert told == ["expandable_segments:True"]


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_settings_of_the_user_stay(told: list[str], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "expandable_segments:False")
    expand_segments()
    assert not told


@pytest.mark.parametrize(("device", "count"), [("cpu", 0), ("cuda:0", 1)])
def test_only_steps_on_gpus_set_it(
    told: list[str], monkeypatch: pytest.MonkeyPatch, device: str, count: int
) -> None:
    monkeypatch.setattr(connecting, "own_device", lambda: torch.device(device))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    connecting.connect(Mesh(()))
    assert len(told) == count


def test_this_pytorch_has_the_setting() -> None:
    assert callable(torch_private.optional("set_allocator_settings"))
