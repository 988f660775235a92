"""Whether matmuls and attention are parts of kernels or calls of a library, by measurement:
a piece of a program is compiled both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernels
from shardc.backends.cpu.compile import build_library
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
        times = ", ".join(f"{1e6 * found.seconds[name]:,.0f} us as {name}" for name in found.seconds)
        return Verdict(found.name == KERNELS, f"measured: {times}")

    def _built(self, piece: ir.Module, name: str) -> Callable[[], object]:
        module = copy_module(piece)
        function = find_function(module)
        assert function is not None
        fuse_module(module, self.numerics, matmuls=lambda _: Verdict(name == KERNELS, ""))
        if name == CALLS:
            extern_module(module, measured_form, self.numerics)
        results = range(len(ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results))
        use_tuned(module)
        library = Library(build_library(module)) if kernels(module) else None
        program = load(emit_graph(module, results, pooled=True), library)
        cpu = torch.device("cpu")
        inputs, rank = piece_inputs(function, cpu), SimpleNamespace(device=cpu)
        return lambda: program(rank, list(inputs))
