"""Whether matmuls and attention are parts of kernels or calls of a library on a GPU that is not here: by the models of
costs, a piece of a program both ways.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.diagnostics.base import ShardcError
from shardc.driver.gpu_estimates import Estimator
from shardc.driver.report import size_text
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.fuse.piece import EveryPiece, Piece, Verdict
from shardc.passes.program import copy_module

SURE = 0.97
"""Of the time of calls, that kernels must be estimated below: the models are no more exact, and libraries are tried."""
SPARED = 1.5
"""Of the time of calls, that kernels may take which keep logits out of memory: they multiply eight times in place of
six. A byte of logits costs a third of a FLOP for each element of a row then; a byte of activations costs twice that,
where a layer is computed again for them.
"""

NO_KERNEL = "no kernel for"
"""What a verdict begins with where there is nothing to choose."""


def text_of(piece: Piece) -> str:
    """Equal pieces have equal texts."""
    return piece.module.operation.get_asm(enable_debug_info=False)


@dataclass(frozen=True)
class ModelledMatmuls:
    """Decides on pieces by the estimates of their two programs. ``numerics`` as for ``kern-fuse``.

    Equal pieces are estimated once.
    """

    estimator: Estimator
    numerics: str = "fused"
    _known: dict[str, Verdict] = field(default_factory=dict, repr=False)

    def __call__(self, piece: Piece) -> Verdict:
        text = text_of(piece)
        if text not in self._known:
            self._known[text] = self._verdict(piece.module, piece.spared_bytes)
        return self._known[text]

    def _verdict(self, piece: ir.Module, spared_bytes: int) -> Verdict:
        return self.compared(piece, piece, spared_bytes)

    def compared(self, calls: ir.Module, kernels: ir.Module, spared_bytes: int) -> Verdict:
        """``calls``, estimated with calls for matmuls and attention, beside ``kernels``, the same with none of them."""
        try:
            calls_s = self.estimator.seconds(self._fused(calls, False))
            made = self.estimator.program(self._fused(kernels, True))
        except ShardcError as error:
            return Verdict(
                False, f"{NO_KERNEL} {self.estimator.target.name}: {str(error).partition(chr(10))[0]}"
            )
        kernels_s = sum(found.estimate.seconds for found in made)
        least_s = sum(found.estimate.roofline_s for found in made)
        times = f"{_us(calls_s)} as calls, {_us(kernels_s)} as kernels, {_us(least_s)} by the roofline"
        spared = f"; kernels hold no logits ({size_text(spared_bytes)})" if spared_bytes else ""
        limit_s = (SPARED if spared_bytes else SURE) * calls_s
        return Verdict(kernels_s < limit_s, f"estimated for {self.estimator.target.name}: {times}{spared}")

    def _fused(self, piece: ir.Module, generated: bool) -> ir.Module:
        module = copy_module(piece)
        fuse_module(module, self.numerics, matmuls=EveryPiece(lambda _: Verdict(generated, "")), for_gpu=True)
        return module


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f} us"
