"""Generation of machine code in a separate process, which may crash without ending the user's process."""

from __future__ import annotations

import atexit
import io
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torch_mlir import ir

from shardc.backends.cpu.object_code.worker import make
from shardc.cache.scratch import scratch
from shardc.diagnostics.kernels import KernelNotLowered
from shardc.runtime.kernels.team import openmp_path

WORKER = Path(__file__).with_name("worker.py")
LIMIT_S = 900
"""Time limit of a compile, in seconds."""

_lock = threading.Lock()
_worker: subprocess.Popen[bytes] | None = None


def start_worker() -> None:
    """Start the process if there is none, so that the first compile does not wait for it."""
    with _lock, suppress(OSError):  # the next compile raises this error
        _running()


def object_code(module: ir.Module, entries: str, without: str) -> bytes:
    """Return the object file of ``module``'s functions and of ``entries``.

    ``without``: result of :func:`shardc.backends.cpu.host.without`. Raises KernelNotLowered if MLIR or LLVM
    rejects the module, or crashes.
    """
    return _made_by(_ask_worker, module, entries, without)


def object_code_here(module: ir.Module, entries: str, without: str) -> bytes:
    """Do the same in this process. A crash of MLIR or LLVM ends it, so use this only in worker processes."""
    return _made_by(lambda folder: make(Path(folder), openmp_path()), module, entries, without)


def _made_by(compiler: Callable[[str], str], module: ir.Module, entries: str, without: str) -> bytes:
    """Return the object file that ``compiler`` writes for a folder. It returns a text if it fails."""
    with scratch() as name:
        folder = Path(name)
        bytecode = io.BytesIO()
        module.operation.write_bytecode(bytecode)
        (folder / "loops.mlir").write_bytes(bytecode.getvalue())
        (folder / "entries.mlir").write_text(entries)
        (folder / "without.txt").write_text(without)
        if problem := compiler(name):
            said = folder / "said.txt"
            more = " ".join(said.read_text(errors="replace").split()) if said.exists() else ""
            reason = ": ".join(filter(None, [problem, more]))[:500]
            raise KernelNotLowered(names=_names(module), reason=reason)
        return (folder / "kernels.o").read_bytes()


def _ask_worker(folder: str) -> str:
    try:
        return _ask(folder)
    except OSError as error:
        return f"{sys.executable!r} did not start as the compiler ({error.strerror or error})"


def _ask(folder: str) -> str:
    """Let the worker compile ``folder``; return why it failed, or an empty text."""
    code = 0
    with _lock:
        for _ in range(2):  # an idle worker may be ending at this moment
            worker = _running()
            try:
                answer = _answer(worker, folder)
            except BaseException:  # after an interrupt, nobody waits for its answer
                _end()
                raise
            if answer is None:
                _end()
                return f"the compiler took more than {LIMIT_S} s"
            if answer:
                return answer.decode().strip()
            code = worker.wait()
            if code:
                break
    end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the compiler {end}"


def _answer(worker: subprocess.Popen[bytes], folder: str) -> bytes | None:
    """Return the worker's answer; empty if it ended, None if it takes too long."""
    assert worker.stdin is not None and worker.stdout is not None
    with suppress(BrokenPipeError):
        worker.stdin.write(os.fsencode(folder) + b"\n")
        worker.stdin.flush()
    return worker.stdout.readline() if select.select([worker.stdout], [], [], LIMIT_S)[0] else None


def _running() -> subprocess.Popen[bytes]:
    global _worker
    if _worker is None or _worker.poll() is not None:
        _end()
        command = [sys.executable, "-I", "-S", str(WORKER), openmp_path(), *filter(None, sys.path)]
        pipe = subprocess.PIPE  # the new session keeps the user's interrupts from the worker
        _worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
    return _worker


def end_worker() -> None:
    """End the process and wait for that, as a child that ends without Python's ``atexit`` should."""
    with _lock:
        _end()


def _end() -> None:
    if _worker is not None:
        _worker.kill()
        _worker.wait()
        assert _worker.stdin is not None and _worker.stdout is not None
        _worker.stdout.close()
        with suppress(BrokenPipeError):
            _worker.stdin.close()


def _after_fork() -> None:
    """Reset the state in a forked child, which needs its own worker."""
    global _worker, _lock
    if _worker is not None:
        _worker.returncode = 0  # the child must not wait for the parent's worker
    _worker, _lock = None, threading.Lock()


atexit.register(_end)
os.register_at_fork(after_in_child=_after_fork)


def _names(module: ir.Module) -> str:
    functions = [o for o in module.body if len(o.regions[0].blocks)]
    return ", ".join(ir.StringAttr(f.attributes["sym_name"]).value.removesuffix("_body") for f in functions)
