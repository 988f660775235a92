"""Which ops become kernels, for which device, and who computes matmuls."""

from dataclasses import dataclass
from typing import Literal, get_args

from shardc.diagnostics.passes.fusion import FusionRefused
from shardc.options.field import Group, Hint, option
from shardc.options.fusion_edges import read_edges
from shardc.options.targets import TARGETS, check_target

MatmulForm = Literal["extern", "generated"]
MATMUL_FORMS: tuple[str, ...] = get_args(MatmulForm)
Matmuls = Literal["auto", MatmulForm]
"""``auto``: what is faster for each part of the program, by measurement, or by a model for a GPU that is not
here. ``extern``: matmuls stay calls of a library. ``generated``: they go into kernels with what is around
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

    fuse: bool = option(True, "Compile groups of ops to kernels; without, all ops are calls of ATen.")
    target: str | None = option(
        None,
        f"What kernels are for, and where the step runs: {', '.join(TARGETS)}; a GPU need not be here. If "
        "not given, the GPU of this machine, and its CPU where torch sees none; torch.compile takes the "
        "device of the tensors.",
    )
    matmuls: Matmuls = option(
        "auto",
        "Matmuls and attention as calls of a library (extern), in kernels (generated), or what is faster "
        "(auto): by measurement, or by a model of a GPU that is not here.",
        was_values=MEASURED,
    )
    externs: Literal["auto", "aten"] = option(
        "auto",
        "Who computes matmuls outside of kernels: ATen, or the faster of ATen and oneDNN (auto).",
        was_values=MEASURED,
        only="torch.compile",
    )
    cuda_graphs: bool = option(
        False, 'Replay programs of GPUs from CUDA graphs, as mode="reduce-overhead".', only="torch.compile"
    )
    forbid_fusion: tuple[str, ...] = option(
        (), "Two ops that must not share a kernel, as explain --fusion names them.", EDGES, was="forbid"
    )
    force_fusion: tuple[str, ...] = option((), "Two ops that must share a kernel.", EDGES, was="force")

    @property
    def has_edges(self) -> bool:
        """Whether a user forbids or forces fusion."""
        return bool(self.forbid_fusion or self.force_fusion)

    @property
    def is_measured(self) -> bool:
        """Whether a benchmark may decide who computes a matmul."""
        return self.fuse and self.externs == "auto"

    def check_step(self) -> None:
        """What one option says of another. Raises UnknownTarget, BadFusionEdge, FusionRefused."""
        if self.target is not None:
            check_target(self.target)
        read_edges(self.forbid_fusion, self.force_fusion)
        if not self.fuse and self.force_fusion:
            raise FusionRefused(edge=self.force_fusion[0], why="fuse is False")
