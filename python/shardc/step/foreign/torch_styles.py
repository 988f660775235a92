"""Plans for ``torch.distributed.tensor.parallel.parallelize_module``: the dims that they shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

from shardc.diagnostics.styles import LayoutRefused, StyleNotForModule, StylesDisagree, UnknownStyle
from shardc.frontend.step.model_state import model_state
from shardc.step.foreign.names import modules_named, no_match

SEQUENCE_DIM = 1
Layouts = Iterator[tuple[str, Placement]]
"""Layouts of a style's activations, each with the name of the style's argument."""
Dims = dict[str, int | None]
"""Parameter -> the sharded dim, or None if the parameter stays whole."""


@dataclass
class StyleCuts:
    """Shardings that a plan for ``parallelize_module`` asks for.

    ``dims``: parameter -> the sharded dim, or None if it stays whole. ``sequence``: True if any activations
    are sharded along the sequence.
    """

    dims: dict[str, int | None] = field(default_factory=dict)
    sequence: bool = False
    _named_by: dict[str, str] = field(default_factory=dict)

    def say(self, name: str, dim: int | None, pattern: str, where: str) -> None:
        """Record a parameter's sharded dim. Raises StylesDisagree if another pattern gave another dim."""
        first = self._named_by.setdefault(name, pattern)
        if self.dims.setdefault(name, dim) != dim:
            raise StylesDisagree(first=first, second=pattern, name=name, where=where)


def torch_cuts(model: nn.Module, plan: Mapping[str, ParallelStyle], where: str) -> StyleCuts:
    """Return the shardings of a mapping for ``parallelize_module``. ``where``: the user's line with it.

    Raises UnknownStyle, StyleNotForModule, LayoutRefused, PatternMatchesNoModule, StylesDisagree.
    """
    found, tied = StyleCuts(), model_state(model).tied
    for pattern, style in plan.items():
        found.sequence |= _cuts_sequence(pattern, style, where)
        modules = modules_named(model, pattern)
        if not modules:
            raise no_match(model, pattern, type(style).__name__, where)
        for path, module in modules:
            dims = CUTS[type(style)](module)
            if dims is None:
                raise StyleNotForModule(
                    pattern=pattern,
                    style=type(style).__name__,
                    expected="linear layers and embeddings",
                    module=path or "the model",
                    kind=f"a {type(module).__name__}",
                    where=where,
                )
            for leaf, dim in dims.items():
                name = f"{path}.{leaf}".lstrip(".")
                found.say(tied.get(name, name), dim, pattern, where)
    return found


def _columns(module: nn.Module) -> Dims | None:
    if isinstance(module, nn.Linear):
        return {name: 0 for name, _ in module.named_parameters(recurse=False)}
    return {"weight": 1} if isinstance(module, nn.Embedding) else None


def _rows(module: nn.Module) -> Dims | None:
    if isinstance(module, nn.Linear):
        names = [name for name, _ in module.named_parameters(recurse=False)]
        return {name: 1 if name == "weight" else None for name in names}
    return {"weight": 0} if isinstance(module, nn.Embedding) else None


def _whole(module: nn.Module) -> Dims:
    return {name: None for name, _ in module.named_parameters()}


def _nothing(module: nn.Module) -> Dims:
    return {}


CUTS: dict[type[ParallelStyle], Callable[[nn.Module], Dims | None]] = {
    ColwiseParallel: _columns,
    RowwiseParallel: _rows,
    SequenceParallel: _whole,
    PrepareModuleInput: _nothing,
    PrepareModuleOutput: _nothing,
    PrepareModuleInputOutput: _nothing,
}
"""Style -> the sharded dims of a module's parameters, as in the style's ``_apply``. None for a module that
the style refuses.
"""


def _cuts_sequence(pattern: str, style: ParallelStyle, where: str) -> bool:
    """Return True if a style shards activations along the sequence. Raises UnknownStyle, LayoutRefused."""
    if type(style) not in CUTS:
        known = ", ".join(kind.__name__ for kind in CUTS)
        raise UnknownStyle(pattern=pattern, style=type(style).__name__, nearest="", known=known, where=where)
    found = False
    for which, layout in _layouts(style):
        if problem := _layout_problem(layout):
            fields = {"style": type(style).__name__, "which": which, "layout": repr(layout), "why": problem}
            raise LayoutRefused(pattern=pattern, where=where, **fields)
        found |= layout == Shard(SEQUENCE_DIM)
    return found


def _layouts(style: ParallelStyle) -> Layouts:
    if isinstance(style, SequenceParallel):
        yield "sequence_dim", style.sequence_sharding[0]
    if isinstance(style, PrepareModuleInputOutput):
        yield from _layouts(style.prepare_module_input)
        yield from _layouts(style.prepare_module_output)
    for which in ("input_layouts", "desired_input_layouts", "output_layouts", "desired_output_layouts"):
        # The desired layouts of Colwise- and RowwiseParallel follow from the parameters' shardings.
        if not (which.startswith("desired") and isinstance(style, ColwiseParallel | RowwiseParallel)):
            yield from _placements(which, getattr(style, which, None) or ())
    for which in ("input_kwarg_layouts", "desired_input_kwarg_layouts"):
        yield from _placements(which, (getattr(style, which, None) or {}).values())


def _placements(which: str, given: Iterable[object]) -> Layouts:
    yield from ((which, layout) for layout in given if isinstance(layout, Placement))


def _layout_problem(layout: Placement) -> str:
    """Return why a plan cannot ask for a layout; empty if it can."""
    if layout == Replicate() or (isinstance(layout, Shard) and layout.dim in (-1, SEQUENCE_DIM)):
        return ""
    if isinstance(layout, Shard) and layout.dim == 0:
        return "which cuts the batch over the axis of the weights"
    if layout.is_partial():
        return "a sum that is not made yet, which is shardc's to place"
    return "which is neither the features nor the sequence"
