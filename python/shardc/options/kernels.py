"""Options of kernels: which ops become kernels, for which device, and what computes matmuls."""

from dataclasses import dataclass
from typing import Literal, get_args

from shardc.diagnostics.passes.fusion import FusionRefused
from shardc.options.field import Group, Hint, option
from shardc.options.fusion_edges import read_edges
from shardc.options.targets import TARGETS, check_target

MatmulForm = Literal["extern", "generated"]
MATMUL_FORMS: tuple[str, ...] = get_args(MatmulForm)
Matmuls = Literal["auto", MatmulForm]
"""How matmuls are computed.

``auto``: whichever is faster for each part of the program, by measurement, or by a model if the GPU is
absent. ``extern``: matmuls stay library calls. ``generated``: matmuls go into kernels with the ops around
them.
"""
MEASURED = {"measured": "auto"}
EDGES = Hint("a list of edges", 'pairs of ops, as in ["aten.add.Tensor+gelu@model.py:12"]', "A+B")


@dataclass(frozen=True)
class Kernels(Group):
    """Options of kernels that stand for groups of ops.

    Example:
        >>> kernels = shardc.Kernels(matmuls="extern")
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, kernels=kernels)
    """

    fuse: bool = option(True, "Compile groups of ops to kernels. Without, every op is a call of ATen.")
    target: str | None = option(
        None,
        f"Target of the kernels, and device of the step: {', '.join(TARGETS)}. A GPU need not be "
        "present. If not given, the GPU of this machine, or its CPU if torch sees no GPU; "
        "torch.compile takes the device of the tensors.",
    )
    matmuls: Matmuls = option(
        "auto",
        "Compute matmuls and attention by library calls (extern), in kernels (generated), or "
        "whichever is faster (auto): by measurement, or by a model if the GPU is absent.",
        was_values=MEASURED,
    )
    externs: Literal["auto", "aten"] = option(
        "auto",
        "Library of matmuls outside kernels: ATen (aten), or the faster of ATen and oneDNN (auto).",
        was_values=MEASURED,
        only="torch.compile",
    )
    cuda_graphs: bool = option(
        False, 'Replay GPU programs from CUDA graphs, as mode="reduce-overhead" does.', only="torch.compile"
    )
    forbid_fusion: tuple[str, ...] = option(
        (),
        "Pairs of ops that must not share a kernel, named as explain --fusion prints them.",
        EDGES,
        was="forbid",
    )
    force_fusion: tuple[str, ...] = option((), "Pairs of ops that must share a kernel.", EDGES, was="force")

    @property
    def has_edges(self) -> bool:
        """Return whether the user forbids or forces fusion."""
        return bool(self.forbid_fusion or self.force_fusion)

    @property
    def is_measured(self) -> bool:
        """Return whether a benchmark may decide what computes a matmul."""
        return self.fuse and self.externs == "auto"

    def check_step(self) -> None:
        """Check options against each other. Raises UnknownTarget, BadFusionEdge, FusionRefused."""
        if self.target is not None:
            check_target(self.target)
        read_edges(self.forbid_fusion, self.force_fusion)
        if not self.fuse and self.force_fusion:
            raise FusionRefused(edge=self.force_fusion[0], why="fuse is False")
