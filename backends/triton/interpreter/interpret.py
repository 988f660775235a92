"""Runs programs with Triton kernels without a GPU: in Triton's interpreter, in a separate process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from shardc.backends.triton.emit.emitted import Emitted
from shardc.workers.process import Ended, Process
from shardc.cache.scratch import scratch
from shardc.diagnostics.triton import InterpreterFailed

ROLE = "shardc.backends.triton.interpreter.interpret_worker:run"
LIMIT_S = 3600.0
"""Limit for one program; after it, the process is stopped."""


class Interpreter:
    """A process that runs programs one after the other; use it in a ``with`` block."""

    def __enter__(self) -> Interpreter:
        self._process = Process(ROLE, {"TRITON_INTERPRET": "1"})
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def run(self, program: str, kernels: Sequence[Emitted], inputs: Sequence[object]) -> list[torch.Tensor]:
        """Return the results of a program's ``graph(rank, inputs)``. Raises InterpreterFailed."""
        with scratch() as name:
            folder = Path(name)
            for kernel in kernels:
                (folder / f"{kernel.name}.py").write_text(kernel.text)
            (folder / "program.py").write_text(program)
            torch.save(list(inputs), folder / "inputs.pt")
            try:
                problem = self._process.ask(folder, LIMIT_S)
            except Ended as error:
                problem = f"its process ended ({error})"
            if problem:
                raise InterpreterFailed(error=problem)
            return torch.load(folder / "results.pt", weights_only=True)
