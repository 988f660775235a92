"""Maxima of padded images, written as one call: a part of ``torch-lift-pads``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.spatial.neighbours import Windows, setting_at
from shardc.dialects.rules.spatial.padded_pooling import PADDED_POOL, PADDED_POOL_BACKWARD, SPATIAL
from shardc.dialects.rules.spatial.pads import CONSTANT, amounts
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.pad.undone import readers, takes_off

POOL = "aten.max_pool2d_with_indices"
POOL_BACKWARD = f"{POOL}_backward"


@dataclass(frozen=True)
class PaddedPool:
    """A maximum of a padded image: the pad, the pool, and the pool's gradients."""

    pad: Node
    pool: Node
    gradients: tuple[Node, ...]

    def write(self, program: Program, builder: CallBuilder) -> None:
        """Write the calls, and let the readers of the old ones read them."""
        image, type_ = program.values[self.pad.operands[0]], program.types[self.pad.operands[0]]
        settings = *_settings(self.pad.spec, self.pool.spec), float(self.pad.spec["value"] or 0)
        op = self.pool.op
        place = op.location, ir.InsertionPoint(op)
        made = builder.call(
            PADDED_POOL, (image, *settings), list(self.pool.spec.results), *place, attributes_of(op)
        )
        for node in self.gradients:
            op = node.op
            args = op.operands[0], image, *settings, made.results[1]
            place = op.location, ir.InsertionPoint(op)
            grad = builder.call(PADDED_POOL_BACKWARD, args, [type_], *place, attributes_of(op))
            for reader in readers(program, node.results[0]):
                reader.op.results[0].replace_all_uses_with(grad.results[0])
        for old, new in zip(self.pool.op.results, made.results, strict=True):
            old.replace_all_uses_with(new)


def find_pools(program: Program) -> Iterator[PaddedPool]:
    """Yield the maxima of images with a pad of their own, if blocks of the image match blocks of windows."""
    for node in program.nodes:
        if node.spec.target != POOL or program.producer[node.operands[0]] < 0:
            continue
        pad = program.nodes[program.producer[node.operands[0]]]
        if not _is_pad(pad.spec) or not _matches(pad.spec, node.spec):
            continue
        gradients = tuple(readers(program, node.results[1]))
        alone = node.results[1] not in program.returns
        if alone and all(_is_gradient(program, each, node, pad) for each in gradients):
            yield PaddedPool(pad, node, gradients)


def _is_pad(spec: OpCall) -> bool:
    pairs = amounts(spec) if spec.target == CONSTANT else (-1,)
    return min(pairs) >= 0 and not any(pairs[2 * SPATIAL :]) and spec.result.dtype.is_floating_point


def _matches(pad: OpCall, pool: OpCall) -> bool:
    """Return whether all windows lie in the padded image, and blocks of pixels match blocks of windows."""
    kernel, stride, before, behind, dilation = _settings(pad, pool)
    if any(setting_at(pool["padding"], d) for d in range(SPATIAL)):
        return False
    image, made = pad.tensors[0].shape[-SPATIAL:], pool.results[0]
    for d, x in enumerate(image):
        assert made is not None
        y = made.shape[d - SPATIAL]
        windows = Windows(x, y, kernel[d], stride[d], before[d], dilation[d])
        inside = (x + before[d] + behind[d] - windows.reach - 1) // stride[d] + 1
        if not windows.aligned or y != inside:
            return False
    return True


def _settings(pad: OpCall, pool: OpCall) -> tuple[tuple[int, ...], ...]:
    """Return the settings of ``shardc::padded_max_pool`` in order, without the pad's number."""
    kernel, stride, dilation = (
        tuple(setting_at(pool[name] or pool["kernel_size"], d) for d in range(SPATIAL))
        for name in ("kernel_size", "stride", "dilation")
    )
    pairs = (*amounts(pad), *(0, 0) * SPATIAL)
    before, behind = (tuple(pairs[2 * (SPATIAL - 1 - d) + side] for d in range(SPATIAL)) for side in (0, 1))
    return kernel, stride, before, behind, dilation


def _is_gradient(program: Program, node: Node, pool: Node, pad: Node) -> bool:
    """Return whether ``node`` is the pool's gradient, of which all readers remove the padding."""
    if node.spec.target != POOL_BACKWARD or node.results[0] in program.returns:
        return False
    same = tuple(node.operands[1:]) == (pool.operands[0], pool.results[1])
    return same and all(takes_off(r.spec, pad.spec) for r in readers(program, node.results[0]))
