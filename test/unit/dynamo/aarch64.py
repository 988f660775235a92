"""Kernels for aarch64 on a machine that is none: MLIR's LLVM IR, compiled by Clang, run by QEMU, a process a
call.

Needs ``pip install ziglang==0.17.0`` (a Clang that knows all targets, with a libc for each; ``zig`` on the
path will do) and ``apt install qemu-user`` or ``qemu-user-static``. Neither is part of the set-up.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch_mlir import ir
from torch_mlir.dialects.llvm import translate_module_to_llvmir

from shardc.backends.body.extract import extract
from shardc.backends.cpu.compile import compile_functions
from shardc.backends.cpu.object_code.lower import lower
from shardc.runtime.kernels.kernel_call import Output, check

HARNESS = Path(__file__).with_name("aarch64.c")
FEATURES = frozenset({"asimd"})
LIMIT_S = 300
AARCH64, SHARED_OBJECT = 183, 3
"""In an ELF header."""


def zig() -> list[str]:
    """The command; empty if it is not installed."""
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang"]
    found = shutil.which("zig")
    return [found] if found else []


def qemu() -> str | None:
    return shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


def missing() -> str:
    """What is not installed."""
    needed = {"ziglang (pip install ziglang==0.17.0)": zig(), "qemu-aarch64 (apt install qemu-user)": qemu()}
    return ", ".join(name for name, found in needed.items() if not found)


def pretend(patch: pytest.MonkeyPatch, folder: Path, threads: int = 1) -> list[Emulated]:
    """From now on kernels are compiled for an aarch64 with NEON alone and emulated; the list takes what is
    compiled.
    """
    machine = SimpleNamespace(machine=lambda: "aarch64", system=lambda: "Linux", processor=lambda: "")
    patch.setattr("shardc.backends.cpu.host.platform", machine)
    patch.setattr("shardc.backends.cpu.host.cpu_features", lambda: FEATURES)
    patch.setattr("shardc.dynamo.program_cache.store", lambda *_: None)
    patch.setenv("SHARDC_LINKER", shlex.join([*zig(), "ld.lld"]))
    made: list[Emulated] = []

    def build(module: ir.Module) -> Emulated:
        made.append(Emulated(module, folder / f"library{len(made)}", threads))
        return made[-1]

    patch.setattr("shardc.backends.cpu.compile.build_library", build)
    patch.setattr("shardc.backends.cpu.target.CpuTarget.load", staticmethod(lambda library: library))
    return made


class Emulated:
    """As :class:`shardc.runtime.kernels.library.Library`, of the kernels of ``module``: the machine code, for
    NEON, is run by QEMU. ``called`` are those that were.
    """

    def __init__(self, module: ir.Module, folder: Path, threads: int) -> None:
        folder.mkdir()
        self.path, self._threads = folder / "kernels", threads
        self.called: set[str] = set()
        functions = extract(module)
        names = [ir.StringAttr(function.attributes["sym_name"]).value for function in functions.body]
        library = compile_functions(functions, self._object_code)
        assert struct.unpack_from("<HH", library, 16) == (SHARED_OBJECT, AARCH64)
        table = " ".join(f"X({name})" for name in names)
        self._compile(f"-DKERNELS={table}", str(HARNESS), "kernels.o", "-static", "-o", "kernels")

    @property
    def assembly(self) -> str:
        self._compile("-S", "kernels.ll", "-o", "kernels.s")
        return self.path.with_suffix(".s").read_text()

    def _object_code(self, module: ir.Module, entries: str, without: str) -> bytes:
        """As :func:`shardc.backends.cpu.object_code.object_code.object_code`."""
        assert not without
        bytecode = io.BytesIO()
        module.operation.write_bytecode(bytecode)
        with ir.Context():
            lowered = ir.Module.parse(bytecode.getvalue())
            lower(lowered, entries, without)
            text = translate_module_to_llvmir(lowered.operation)
        self.path.with_suffix(".ll").write_text(_CONSTANT.sub(_older_form, text))
        self._compile("-c", "-fPIC", "kernels.ll", "-o", "kernels.o")
        return self.path.with_suffix(".o").read_bytes()

    def _compile(self, *arguments: str) -> None:
        command = [*zig(), "cc", "-target", "aarch64-linux-musl", "-O3", "-Wno-override-module", *arguments]
        done = subprocess.run(command, cwd=self.path.parent, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr[:2000]

    def kernel(
        self,
        name: str,
        outputs: Sequence[Output],
        size: int | None = None,
        checks: Mapping[int, str] | None = None,
    ) -> Callable[..., tuple[Tensor, ...]]:
        def call(*tensors: Tensor) -> tuple[Tensor, ...]:
            first = [] if size is None else [1, size]
            (results,) = self._run(name, first, [(tensors, outputs)])
            for number, message in (checks or {}).items():
                check(results[number].item(), message)
            return results

        return call

    def batch(
        self, name: str, members: Sequence[tuple[int, Sequence[Output]]]
    ) -> Callable[..., list[tuple[Tensor, ...]]]:
        def call(*given: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
            return self._run(
                name, [len(given)], list(zip(given, (o for _, o in members), strict=True)), sizes
            )

        sizes = [size for size, _ in members]
        return call

    def _run(
        self,
        name: str,
        first: list[int],
        members: list[tuple[Sequence[Tensor], Sequence[Output]]],
        sizes: Sequence[int] = (),
    ) -> list[tuple[Tensor, ...]]:
        """The results of each member. What a kernel may only read is as it was."""
        slots: list[int | Tensor] = list(first)
        found, written = [], set()
        for number, (tensors, outputs) in enumerate(members):
            read = [t.contiguous() for t in tensors]
            made = [read[o] if isinstance(o, int) else torch.empty(o[0], dtype=o[1]) for o in outputs]
            new = [t for t, o in zip(made, outputs, strict=True) if not isinstance(o, int)]
            slots += [*sizes[number : number + 1], *read, *new]
            written |= {id(t) for t in made}
            found.append(tuple(made))
        command = [qemu(), str(self.path), name, str(self._threads)]
        given = struct.pack("<q", len(slots)) + b"".join(map(_slot, slots))
        done = subprocess.run(command, input=given, capture_output=True, timeout=LIMIT_S)
        assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr[:500]!r}"
        self.called.add(name)
        content = io.BytesIO(done.stdout)
        for tensor in (slot for slot in slots if isinstance(slot, Tensor)):
            after = torch.frombuffer(bytearray(content.read(tensor.nbytes) or b"\0"), dtype=torch.uint8)
            if id(tensor) in written:
                _bytes(tensor).copy_(after[: tensor.nbytes])
            else:
                assert torch.equal(_bytes(tensor), after[: tensor.nbytes]), f"{name} wrote to what it reads"
        return found


_CONSTANT = re.compile(r"(?<![\w.%@#-])(f0x[0-9A-F]+|[+-]?(?:inf|qnan|\d+\.\d+e[+-]\d+))(?![\w.(])")
_TYPE = re.compile(r"\b(float|double|half|bfloat)\b")
_DTYPES = {
    "float": (torch.float32, torch.int32),
    "double": (torch.float64, torch.int64),
    "half": (torch.float16, torch.int16),
    "bfloat": (torch.bfloat16, torch.int16),
}
_SPECIAL = {
    "half": {"inf": "0xH7C00", "-inf": "0xHFC00", "qnan": "0xH7E00"},
    "bfloat": {"inf": "0xR7F80", "-inf": "0xRFF80", "qnan": "0xR7FC0"},
    "float": {"inf": "0x7FF0000000000000", "-inf": "0xFFF0000000000000", "qnan": "0x7FF8000000000000"},
}


def _older_form(found: re.Match[str]) -> str:
    """A floating-point constant as LLVM 22 reads it: MLIR's LLVM is newer, and writes ``f0x3F800000``,
    ``-inf``, and decimals that are rounded.
    """
    text, start = found[1], found.string.rfind("\n", 0, found.start()) + 1
    kind = _TYPE.findall(found.string, start, found.start())[-1]
    if text.endswith(("inf", "qnan")):
        return _SPECIAL["float" if kind == "double" else kind][text.removeprefix("+")]
    dtype, integer = _DTYPES[kind]
    if text.startswith("f0x"):
        value = torch.tensor(int(text[3:], 16), dtype=torch.int64).to(integer).view(dtype)
    else:
        value = torch.tensor(float(text), dtype=torch.float64).to(dtype)
    if kind in ("half", "bfloat"):
        return f"0x{'H' if kind == 'half' else 'R'}{value.view(integer).item() & 0xFFFF:04X}"
    return f"0x{struct.pack('>d', value.item()).hex().upper()}"


def _bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory."""
    return tensor.detach().view(-1).view(torch.uint8)


def _slot(slot: int | Tensor) -> bytes:
    if isinstance(slot, int):
        return struct.pack("<qq", 0, slot)
    return struct.pack("<qq", 1, slot.nbytes) + _bytes(slot).numpy().tobytes()
