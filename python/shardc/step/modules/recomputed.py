"""Modules of a model that ``recompute=`` names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from torch import nn

from shardc.diagnostics.passes.recompute import NoRepeatedLayers, UnknownRecomputed
from shardc.options.parallelism import Parallelism
from shardc.options.recompute import is_of_stages
from shardc.step.foreign.names import nearest

LISTS = (nn.ModuleList, nn.ModuleDict)
"""Modules that are never called themselves."""


def recomputed(model: nn.Module, options: Parallelism) -> tuple[str, ...]:
    """Return the modules whose backward recomputes their forward.

    With a memory budget these are all repeated layers; equal layers get one choice. There are none if a
    pipeline recomputes whole stages: those with a policy each, and those of a model without repeated layers.

    Raises UnknownRecomputed, NoRepeatedLayers.
    """
    if options.memory_budget is not None:
        return tuple(repeated_layers(model))
    wanted = options.recompute
    if wanted == "none":
        return ()
    is_pipeline = bool(options.pipeline_axis())
    if is_pipeline and is_of_stages(wanted):
        return ()
    if not isinstance(wanted, str):
        return tuple(_outermost(model, wanted))
    found = tuple(repeated_layers(model))
    if not found and not is_pipeline:
        example = next((name for name, _ in model.named_children()), "layers.*")
        raise NoRepeatedLayers(policy=wanted, example=example)
    return found


def repeated_layers(model: nn.Module, path: str = "") -> Iterator[str]:
    """Yield names of repeated layers: outermost modules with submodules, in a list with others of their
    class.

    Stages of a network, which differ in shapes and contain layers themselves, do not count.
    """
    is_list = isinstance(model, (*LISTS, nn.Sequential))
    children = dict(model.named_children())
    for name, child in children.items():
        place = f"{path}.{name}".lstrip(".")
        others = [other for other in children.values() if other is not child and type(other) is type(child)]
        is_layer = is_list and others and not isinstance(child, LISTS) and any(True for _ in child.children())
        inside = list(repeated_layers(child, place))
        if is_layer and (not inside or any(_shapes(other) == _shapes(child) for other in others)):
            yield place
        else:
            yield from inside


def _shapes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in module.parameters()]


def _outermost(model: nn.Module, patterns: Sequence[str]) -> Iterator[str]:
    """Yield names of the outermost modules that match. A list of modules yields its members."""
    names = {name: module for name, module in model.named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnknownRecomputed(pattern=pattern, nearest=nearest(pattern, names))
    matching = {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}
    chosen: set[str] = set()
    for name, module in names.items():
        parents = [name[:place] for place, letter in enumerate(name) if letter == "."]
        if chosen.intersection(parents) or not (name in matching or matching.intersection(parents)):
            continue
        if not isinstance(module, LISTS):
            chosen.add(name)
            yield name
