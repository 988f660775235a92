"""Entries of the caches that are not what was written: they execute nothing, are removed, and made again."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shardc.backends.benchmark import benchmark
from shardc.backends.triton.aot import archive
from shardc.cache import disk
from shardc.compiler.warn_once import warned
from shardc.dynamo import program_cache, trace_cache, trace_form


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "shardc"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    (tmp_path / "temporary").mkdir()
    return tmp_path / "shardc"


def trained() -> torch.Tensor:
    """A gradient of a function compiled as a new process would."""
    torch._dynamo.reset()
    x = torch.linspace(-1, 1, 30).requires_grad_()
    torch.compile(lambda x: torch.tanh(x) * 3, backend="shardc", dynamic=False)(x).sum().backward()
    assert x.grad is not None
    return x.grad


def names(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{kind}-*"))


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "a trace that is no JSON": ("trace", lambda content: b"no JSON"),
    "a trace of another form": ("trace", lambda content: b'{"object": ["os", "system", {}]}'),
    "a trace without fields": (
        "trace",
        lambda content: json.dumps({"object": [*json.loads(content)["object"][:2], {}]}).encode(),
    ),
    "a program that is no JSON": ("graph", lambda content: b"{"),
    "a program without a text": ("graph", lambda content: b"{}"),
    "a program that is a list": ("graph", lambda content: b"[]"),
    "a program that is no Python": (
        "graph",
        lambda content: json.dumps(json.loads(content) | {"text": "def graph(:"}).encode(),
    ),
    "a program of an unknown backend": (
        "graph",
        lambda content: json.dumps(json.loads(content) | {"backend": "os:system"}).encode(),
    ),
    "a library that is none": ("kernels", lambda content: b"\x7fELF and no more"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_entry_that_does_not_parse_is_made_again(folder: Path, damage: str) -> None:
    """Its seal is whole, so that only its content says so."""
    kind, change = DAMAGES[damage]
    expected = trained()
    before = {name: disk.read(name) for name in names(folder, kind)}
    assert before, "nothing to attack"
    for name, found in before.items():
        assert found is not None
        disk.keep(name, change(found[1]))
    warned_before = set(warned)
    assert torch.equal(trained(), expected) and set(warned) == warned_before
    for name, found in before.items():
        now = disk.read(name)
        assert now is not None and found is not None and now[1] != change(found[1])


def test_no_entry_is_a_pickle(folder: Path) -> None:
    trained()
    entries = [path for path in folder.iterdir() if disk.OUR_NAME.fullmatch(path.name)]
    assert {path.name.partition("-")[0] for path in entries} == {"trace", "graph", "kernels"}
    for path in entries:
        found = disk.read(path.name)
        assert found is not None
        if path.suffix == ".so":
            assert found[1].startswith(b"\x7fELF")
        else:
            json.loads(found[1])


class Attack:
    def __reduce__(self) -> tuple[object, ...]:
        return pytest.fail, ("a pickle was executed",)


def test_a_pickle_in_a_trace_is_not_executed(folder: Path) -> None:
    expected = trained()
    for name in names(folder, "trace"):
        disk.keep(name, pickle.dumps(Attack()))
    assert torch.equal(trained(), expected)


@pytest.mark.parametrize(
    "form",
    [
        {"object": ["subprocess", "Popen", {}]},
        {"object": ["shardc.dynamo.program", "partial", {}]},
        {"object": ["torch._guards", "torch", {}]},
        {"enum": ["torch._guards", "Source", "x"]},
        {"type": ["torch", "load"]},
        {"type": ["os", "PathLike"]},
        {"word": "load"},
        {"unknown": 1},
        {"tuple": [1], "list": [2]},
        {"dict": [[{"dict": []}, 1]]},
        {"tensor": [{"word": "float32"}, [1 << 40], "AAAA"]},
    ],
)
def test_a_form_names_nothing_else(form: object) -> None:
    with pytest.raises(trace_form.NoTrace):
        trace_form.read(json.dumps(form).encode())


def test_a_form_reads_back_the_same() -> None:
    value = [1, 2.5, None, True, "text", (1, (2,)), {"a": {3}}, torch.float16, torch.device("cpu")]
    assert trace_form.read(trace_form.written(value)) == value
    for tensor in (torch.randn(3, 4), torch.zeros(0), torch.tensor(True), torch.randn(2).bfloat16()):
        assert torch.equal(trace_form.read(trace_form.written(tensor)), tensor)


def test_nothing_is_left_in_the_temporary_folder(folder: Path) -> None:
    """PyTorch keeps pickles there under a name that another user can guess and make first: only its empty
    folder is there.
    """
    trained()
    left = (folder.parent / "temporary").rglob("*")
    assert [path for path in left if path.is_file() or not path.name.startswith("torchinductor_")] == []


def test_a_program_that_names_a_file_elsewhere(folder: Path, tmp_path: Path) -> None:
    trained()
    (library,) = names(folder, "kernels")[:1]
    outside = (folder / library).rename(tmp_path / library)
    content = {"text": "pass", "backend": "cpu", "library": f"../{outside.name}"}
    key = "0" * 32
    disk.keep(f"graph-{key}.json", json.dumps(content).encode())
    assert program_cache.load(key) is None and outside.exists()


def test_a_choice_that_does_not_parse_is_removed(folder: Path) -> None:
    name = f"choice-{'0' * 32}.json"
    for content in (b"{", b"[]", b'{"choice": "a", "seconds": 5}', b"{}"):
        disk.keep(name, content)
        assert benchmark._find(name) is None and disk.find(name) is None


def test_modules_that_do_not_parse_are_removed(folder: Path) -> None:
    name = f"triton-{'0' * 32}"
    disk.keep(name + archive.SUFFIX, b"no archive")
    assert archive.find(name) is None and disk.find(name + archive.SUFFIX) is None


def test_traces_are_kept_and_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    load = trace_cache.load
    monkeypatch.setattr(trace_cache, "load", lambda name: found.append(load(name)) or found[-1])
    first, second = trained(), trained()
    assert torch.equal(first, second) and found[0] is None and found[1] is not None
