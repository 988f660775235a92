"""Whether matmuls and attention are parts of kernels or calls of a library, by measurement:
a piece of a program is compiled both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernels
from shardc.backends.cpu.compile import build_library
from shardc.backends.measure.choices import Choice
from shardc.backends.measure.contest import Candidate, decide
from shardc.backends.measure.contractions import measured_form
from shardc.backends.torch.emit_graph import emit_graph
from shardc.driver.graph_program import load
from shardc.driver.piece_inputs import piece_inputs
from shardc.driver.piece_model import text_of
from shardc.driver.program_cache import versions
from shardc.driver.tuned import use_tuned
from shardc.passes.extern.kern_extern import extern_module
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.piece import Piece, Verdict
from shardc.passes.program import copy_module, find_function
from shardc.runtime.kernels import Library
from shardc.tuner.database.place import tuning_choices

CALLS, KERNELS = "calls", "kernels"
REACH = 0.6
"""Of a piece's time in kernels: where calls of libraries take less, no configuration is expected to be faster."""

_lost: ContextVar[dict[str, Lost] | None] = ContextVar("shardc_lost_pieces", default=None)


@dataclass
class Lost:
    """A piece that is calls of libraries, ``times`` in all, as kernels; the calls take ``needs`` of the kernels' time."""

    module: ir.Module = field(repr=False)
    needs: float
    times: int = 1


@contextmanager
def collect_lost() -> Iterator[dict[str, Lost]]:
    """The pieces that lose contests inside the block, though not by far (REACH), by their texts."""
    found: dict[str, Lost] = {}
    token = _lost.set(found)
    try:
        yield found
    finally:
        _lost.reset(token)


@dataclass(frozen=True)
class MeasuredMatmuls:
    """Decides on pieces by a contest of their two programs, whose outcome is remembered.

    ``numerics`` as for ``kern-fuse``. Matmuls that are calls are those of the fastest library.
    """

    numerics: str = "fused"

    def __call__(self, piece: Piece) -> Verdict:
        subject = f"{text_of(piece)}\n{self.numerics} {versions()} {tuning_choices()}"
        candidates = [Candidate(name, partial(self._built, piece.module, name)) for name in (CALLS, KERNELS)]
        found = decide(subject, candidates)
        self._note(piece, found)
        times = ", ".join(f"{1e6 * found.seconds[name]:,.0f} us as {name}" for name in found.seconds)
        return Verdict(found.name == KERNELS, f"measured: {times}")

    def _note(self, piece: Piece, found: Choice) -> None:
        lost, seconds = _lost.get(), found.seconds
        if (
            lost is None
            or found.name != CALLS
            or KERNELS not in seconds
            or seconds[CALLS] < REACH * seconds[KERNELS]
        ):
            return
        text = text_of(piece)
        if text in lost:
            lost[text].times += 1
        else:
            lost[text] = Lost(self._fused(piece.module, KERNELS), min(1.0, seconds[CALLS] / seconds[KERNELS]))

    def _fused(self, piece: ir.Module, name: str) -> ir.Module:
        module = copy_module(piece)
        fuse_module(module, self.numerics, matmuls=lambda _: Verdict(name == KERNELS, ""))
        return module

    def _built(self, piece: ir.Module, name: str) -> Callable[[], object]:
        module = self._fused(piece, name)
        function = find_function(module)
        assert function is not None
        if name == CALLS:
            extern_module(module, measured_form, self.numerics)
        results = range(len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results))
        use_tuned(module)
        library = Library(build_library(module)) if kernels(module) else None
        program = load(emit_graph(module, results, pooled=True), library)
        cpu = torch.device("cpu")
        inputs, rank = piece_inputs(function, cpu), SimpleNamespace(device=cpu)
        return lambda: program(rank, list(inputs))
