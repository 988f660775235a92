"""Kernels compiled ahead of time for every target, and the guaranteed properties of their code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_mlir import ir

from shardc.backends.triton.aot import compile as compiling
from shardc.backends.triton.aot.compile import compile_kernels
from shardc.backends.triton.aot.folder import write_folder
from shardc.backends.triton.emit.emitted import Emitted
from shardc.cost.machine import GPUS, find_gpu
from shardc.diagnostics.kernels import UnknownTarget
from shardc.diagnostics.triton import (
    TooMuchSharedMemory,
    TritonCompileFailed,
    TritonMissing,
    TritonTooOld,
)
from shardc.runtime.kernels.triton_binaries import KEY

from .contractions import Case, emitted_attention
from .programs import SM_90, emitted, fused
from .test_cross_entropy import emitted as emitted_cross_entropy
from .test_golden import _adamw

aten = torch.ops.aten
BIG, WIDE = (4096, 1024), (4096, 4096)


def _norm_backward(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor, w: Tensor) -> Any:
    return aten.native_layer_norm_backward(g, x, [BIG[1]], mean, scale, w, w, [True] * 3)


KERNELS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "gelu": (
        lambda x, b: F.gelu(x + b),
        (torch.empty(BIG, dtype=torch.bfloat16), torch.empty(BIG[1], dtype=torch.bfloat16)),
    ),
    "swiglu": (lambda x, y: F.silu(x) * y, (torch.empty(BIG), torch.empty(BIG))),
    "softmax": (lambda x: torch.softmax(x, -1), (torch.empty(BIG, dtype=torch.bfloat16),)),
    "long softmax": (lambda x: torch.softmax(x, -1), (torch.empty(64, 50304),)),
    "layer norm backward": (
        _norm_backward,
        (torch.empty(BIG), torch.empty(BIG), torch.empty(4096, 1), torch.empty(4096, 1), torch.empty(1024)),
    ),
    "sum over rows": (lambda x: x.sum(0), (torch.empty(WIDE),)),
}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", GPUS)
def test_contracts(target: str, tmp_path: Path) -> None:
    """No spills and no traffic with local memory anywhere; all that pointwise kernels and rows read and write
    is 16 bytes a thread.
    """
    made = [
        replace(k, name=f"{k.name}_{n}")
        for n, (f, given) in enumerate(KERNELS.values())
        for k in emitted(fused(f, *given), GPUS[target])
    ]
    for compiled in compile_kernels(made, [GPUS[target]], tmp_path):
        assert compiled.error is None, compiled.error
        sizes = {function.name: function.sizes for function in compiled.kernel.functions}
        for found in compiled.functions:
            assert found.spill_bytes == 0 and found.local_accesses == 0, found
            assert (
                found.shared_bytes <= GPUS[target].shared_bytes and found.registers <= GPUS[target].registers
            )
            if len(found.aligned) < len(sizes[found.name]):
                continue  # the binary for other sizes than multiples of 16
            if not found.name.endswith(("_all", "_join")):  # which read a table, or a column's parts
                assert found.wide_loads, found
                assert (
                    found.wide_loads == found.loads
                    or compiled.kernel.kind != "pointwise"
                    or compiled.kernel.flat
                ), found


@pytest.mark.slow
def test_attention_without_matrix_instructions_spills_nothing(tmp_path: Path) -> None:
    """Where the last block of keys is a ragged one: loaded ahead of the others, its factors spilled 184 to
    272 bytes.
    """
    made = emitted_attention(Case(3, 6, 2, 257, 257, 54, 54, torch.float32, causal=False, heads_last=True))
    for compiled in compile_kernels(made, [SM_90], tmp_path):
        assert compiled.error is None, compiled.error
        assert [f.spill_bytes for f in compiled.functions] == [0] * len(compiled.functions)


def test_an_unknown_target_names_those_that_there_are() -> None:
    with pytest.raises(UnknownTarget, match="'sm_89'; known ones are sm_80, sm_90, sm_100, gfx942"):
        find_gpu("sm_89")


def test_too_much_shared_memory(tmp_path: Path) -> None:
    kernel = emitted(fused(*_softmax()))[0]
    (compiled,) = compile_kernels([kernel], [replace(SM_90, shared_bytes=4)], tmp_path)
    assert isinstance(compiled.error, TooMuchSharedMemory) and "sm_90 has 4" in str(compiled.error)


@pytest.mark.slow
def test_what_does_not_compile_is_named(tmp_path: Path) -> None:
    """By Triton's own error, and where its process takes too long or ends; the next kernel compiles."""
    kernel = emitted(fused(*_softmax()))[0]
    wrong = replace(kernel, name="wrong", text=kernel.text.replace("tl.load(", "tl.no_such_thing("))
    ends = replace(kernel, name="ends", text="import os\nos._exit(3)\n")
    sleeps = replace(kernel, name="sleeps", text="import time\ntime.sleep(1000)\n")
    found = compile_kernels([wrong, ends, kernel], [SM_90], tmp_path, processes=1)
    assert isinstance(found[0].error, TritonCompileFailed) and "no_such_thing" in str(found[0].error)
    assert "its process ended with exit code 3" in str(found[1].error) and found[2].error is None
    (late,) = compile_kernels([sleeps], [SM_90], tmp_path, limit_s=0.5)
    assert "it took more than 0.5 s" in str(late.error)


def test_triton_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise compiling.PackageNotFoundError(name)

    for version, error in ((missing, TritonMissing), (lambda name: "3.5.1", TritonTooOld)):
        monkeypatch.setattr(compiling, "version", version)
        compiling.check_triton.cache_clear()
        with pytest.raises(error, match=r"3\.6"):
            compiling.check_triton("sm_90")
    compiling.check_triton.cache_clear()


def _softmax() -> tuple[Callable[..., Any], Tensor]:
    return lambda x: torch.softmax(x, -1), torch.empty(BIG)


@pytest.mark.slow
def test_compiled_binaries_are_found(tmp_path: Path) -> None:
    """What Triton's own launch would look for is what was compiled: nothing is compiled again under the same
    Triton. Sizes in symbols may be multiples of 16 or not; the number of a draw is any number.
    """
    functions = [
        _softmax(),
        (lambda x: x.sum(0), torch.empty(WIDE)),
        (lambda x, y: F.silu(x) * y, torch.empty(BIG), torch.empty(BIG)),
    ]
    made = [k for f in functions for k in emitted(fused(*f))]
    made += emitted(_drawn())
    assert "SIZES = 0" not in made[-1].text and "do_not_specialize" in made[-1].text
    attention = Case(2, 4, 2, 128, 128, 64, 64, torch.bfloat16, causal=True, heads_last=True)
    made.append(emitted_attention(attention, symbolic="mn")[0])
    assert "SIZES = 2" in made[-1].text and len(made[-1].functions[0].sizes) == 2
    made.append(emitted_cross_entropy(64, 640, 64, torch.bfloat16, chunk=128)[1])
    assert 'do_not_specialize=["first"]' in made[-1].text
    made += emitted(fused(_adamw, *(torch.empty(64, 64) for _ in range(4))))
    assert made[-1].flat
    write_folder(compile_kernels(made, [SM_90], tmp_path / "kernels"), tmp_path / "kernels")
    hits = _hits(tmp_path, made, "90")
    assert hits.keys() == {f.name for k in made for f in k.functions} and all(hits.values()), hits


@pytest.mark.slow
def test_binaries_are_found_under_another_python(tmp_path: Path) -> None:
    """Triton's key has a hash of its own library, which is another file in the build for each Python."""
    made = list(emitted(fused(*_softmax())))
    write_folder(compile_kernels(made, [SM_90], tmp_path / "kernels"), tmp_path / "kernels")
    assert all(_hits(tmp_path, made, "90", "another").values())


@pytest.mark.slow
def test_binaries_of_another_triton_are_not_taken(tmp_path: Path) -> None:
    made = list(emitted(fused(*_softmax())))
    write_folder(compile_kernels(made, [SM_90], tmp_path / "kernels"), tmp_path / "kernels")
    (key,) = (tmp_path / "kernels" / "cache").glob(f"*/{KEY}")
    key.write_text(json.dumps(json.loads(key.read_text()) | {"triton": "3.6.1"}))
    assert not any(_hits(tmp_path, made, "90").values())


@pytest.mark.slow
def test_another_gpu_compiles_from_the_source(tmp_path: Path) -> None:
    """Binaries of sm_90 are of no use on sm_80: the module beside them is compiled at its first
    call there.
    """
    made = list(emitted(fused(*_softmax())))
    write_folder(compile_kernels(made, [SM_90], tmp_path / "kernels"), tmp_path / "kernels")
    hits = _hits(tmp_path, made, "80")
    assert hits.keys() == {f.name for k in made for f in k.functions} and not any(hits.values()), hits
    assert all(_hits(tmp_path, made, "80").values()), (
        "what was compiled at the first call is found at the next"
    )


def _hits(folder: Path, made: list[Emitted], arch: str, *build: str) -> dict[str, bool]:
    """For each function whether a process on such a GPU finds all of its binaries; the others it compiles."""
    asked = [
        [
            k.name,
            f.name,
            [t for t in f.signature.values() if t != "constexpr"],
            dict(f.constants),
            f.num_warps,
            f.num_stages,
        ]
        for k in made
        for f in k.functions
    ]
    command = [
        sys.executable,
        str(Path(__file__).with_name("cache_hits.py")),
        str(folder / "kernels"),
        json.dumps(asked),
        arch,
        *build,
    ]
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "user")}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(said.splitlines()[-1])


def _drawn() -> ir.Module:
    """Dropout by the number of a draw."""
    place = ((64, 128), (0, 0), (64, 128))
    uniform = torch.ops.shardc.uniform
    return fused(
        lambda x, seed: x * (uniform(seed, 3, *place, dtype=torch.float32) > 0.5),
        torch.randn(64, 128),
        torch.tensor(7),
    )
