"""Runs programs with Triton kernels in Triton's interpreter, in a process of its own: without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from shardc.backends.triton.emit.emitted import Emitted
from shardc.diagnostics.triton import InterpreterFailed
from shardc.environment import child_environment


class Interpreter:
    """A process that runs one program after the other; use it in a ``with`` block."""

    def __enter__(self) -> Interpreter:
        environment = child_environment(TRITON_INTERPRET="1")
        command = [sys.executable, "-m", "shardc.backends.triton.interpreter.interpret_worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, program: str, kernels: Sequence[Emitted], inputs: Sequence[Any]) -> list[Any]:
        """The results of a program's ``graph(rank, inputs)``. Raises InterpreterFailed."""
        with tempfile.TemporaryDirectory(prefix="shardc-") as name:
            folder = Path(name)
            for kernel in kernels:
                (folder / f"{kernel.name}.py").write_text(kernel.text)
            (folder / "program.py").write_text(program)
            torch.save(list(inputs), folder / "inputs.pt")
            self._process.stdin.write(json.dumps(name) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            found = (
                json.loads(answer)
                if answer
                else {"error": f"its process ended ({self._process.wait()})", "traceback": ""}
            )
            if "error" in found:
                raise InterpreterFailed(error=f"{found['error']}\n{found['traceback']}")
            return torch.load(folder / "results.pt")
