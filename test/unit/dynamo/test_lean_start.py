"""What a warm start leaves out, of PyTorch's hash of a graph and of Dynamo's trace, nobody sees."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo import funcname_cache, output_graph, symbolic_convert
from torch._inductor import codecache

from shardc.driver.lean_hash import loaded_later, without_inductor
from shardc.driver.unread_names import skip_unread_names


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="with a GPU PyTorch hashes Triton's files, and so do we"
)
def test_pytorch_throws_the_hash_of_triton_away() -> None:
    systems = [codecache.CacheBase.get_system.__wrapped__()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codecache, "triton_key", lambda: None)
        systems.append(codecache.CacheBase.get_system.__wrapped__())
    assert systems[0] == systems[1]


def test_all_is_as_before_behind_the_hash() -> None:
    before = codecache.triton_key, codecache.init_backend_registration, dict(sys.modules)
    inside = without_inductor(lambda: codecache.init_backend_registration)()
    assert inside is not before[1]
    assert (codecache.triton_key, codecache.init_backend_registration, dict(sys.modules)) == before


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that is not loaded."""
    (tmp_path / "seldom_read.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "seldom_read"
    sys.modules.pop("seldom_read", None)


def test_a_module_is_not_loaded_that_nobody_calls(module: str) -> None:
    with loaded_later(module):
        import seldom_read

        assert not hasattr(seldom_read, "__file__")
    assert module not in sys.modules


def test_a_module_is_loaded_when_it_is_called(module: str) -> None:
    with loaded_later(module):
        from seldom_read import twice

        assert twice(3) == 6
    assert sys.modules[module].__file__


def test_names_are_looked_up_where_a_log_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unread_names()
    line = test_all_is_as_before_behind_the_hash.__code__.co_firstlineno
    assert not output_graph.trace_call_log.isEnabledFor(logging.DEBUG)
    assert symbolic_convert.get_funcname(__file__, line) is None
    monkeypatch.setattr(output_graph.trace_call_log, "level", logging.DEBUG)
    output_graph.trace_call_log.manager._clear_cache()
    assert symbolic_convert.get_funcname(__file__, line) == funcname_cache.get_funcname(__file__, line)
    assert "test_all_is_as_before" in funcname_cache.get_funcname(__file__, line)
    monkeypatch.undo()
    output_graph.trace_call_log.manager._clear_cache()
