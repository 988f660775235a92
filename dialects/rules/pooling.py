"""Rules of pooling and resampling: images [..., pixels] whose leading dims (batch, channels) may be cut.

Pixels stay whole: neighbouring blocks would need each other's edges.
"""

from collections.abc import Sequence
from functools import partial

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.rules.pointwise import results_of
from shardc.dialects.rules.rule import Dims, Local, Rule, emit_with, plain, rule_for

# Spatial dims -> operators that are linear in their first operand: averages, resampling, all gradients.
LINEAR = {
    1: """
        avg_pool1d upsample_nearest1d upsample_nearest1d.vec upsample_nearest1d_backward
        _upsample_nearest_exact1d _upsample_nearest_exact1d_backward upsample_linear1d upsample_linear1d.vec
        upsample_linear1d_backward
    """,
    2: """
        avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
        max_pool2d_with_indices_backward adaptive_max_pool2d_backward upsample_nearest2d
        upsample_nearest2d.vec upsample_nearest2d_backward _upsample_nearest_exact2d
        _upsample_nearest_exact2d_backward upsample_bilinear2d upsample_bilinear2d.vec
        upsample_bilinear2d_backward upsample_bicubic2d upsample_bicubic2d.vec upsample_bicubic2d_backward
    """,
    3: """
        avg_pool3d avg_pool3d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
        max_pool3d_with_indices_backward adaptive_max_pool3d_backward upsample_nearest3d
        upsample_nearest3d.vec upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d.vec
        upsample_trilinear3d_backward
    """,
}
MAXIMA = {2: "max_pool2d_with_indices adaptive_max_pool2d", 3: "max_pool3d_with_indices adaptive_max_pool3d"}


def _rule(call: OpCall, spatial: int, linear: tuple[frozenset[int], ...]) -> Rule:
    """Every tensor is ``[n0, n1, ..., pixels]``; each size of image has a letter of its own."""
    tensors = (*call.tensors, *results_of(call))
    letters: dict[tuple[int, ...], str] = {}
    sizes: dict[str, int] = {}
    dims: list[Dims] = []
    for tensor in tensors:
        letter = letters.setdefault(tensor.shape[-spatial:], "abc"[len(letters)])
        leading = [f"n{i}" for i in range(len(tensor.shape) - spatial)]
        names = [*leading, *(f"{letter}{i}" for i in range(spatial))]
        sizes.update(zip(names, tensor.shape, strict=True))
        dims.append(plain(names))
    count = len(call.tensors)
    return Rule(
        tuple(dims[:count]),
        tuple(dims[count:]),
        sizes,
        replicate=frozenset(f for f in sizes if not f.startswith("n")),
        linear=linear,
        lower=_local_size if any(name == "input_size" for name, _, _ in parameters(call.target)) else None,
    )


def _local_size(local: Local) -> Sequence[object]:
    """A gradient that is told the shape of what it makes."""
    return [emit_with(local, input_size=results_of(local)[0].shape)]


for _table, _linear in ((LINEAR, (frozenset({0}),)), (MAXIMA, ())):
    for _spatial, _names in _table.items():
        rule_for(*(f"aten.{n}" for n in _names.split()))(partial(_rule, spatial=_spatial, linear=_linear))
