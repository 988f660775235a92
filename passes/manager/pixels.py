"""Search for the dims of pixels, or of samples, that depend on given dims of the program's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardc.dialects.dist.sharding import Axes
from shardc.dialects.rules.rule import Dim, Rule
from shardc.dialects.rules.spatial.convolution import FIRST_PIXELS
from shardc.passes.manager.program import Node, Program

CONVOLUTION, GROUP_NORM = "aten.convolution", "aten.native_group_norm"
Place = tuple[int, int]
"""Factor of a dim: the dim, and the number of elements of its more major factors."""
Reached = dict[int, dict[Place, Axes]]
"""Axes that split a factor's source dim, by value number and factor."""


def follow_pixels(program: Program, seeds: Mapping[int, Mapping[int, Axes]]) -> Reached:
    """Return the dims of all values that depend on the dims in ``seeds``.

    A call passes a dim on to its results with the same factor, even if a reshape merges it with other dims. A
    convolution passes on the dims along which its windows move, and a group norm its pixels, even if the
    devices cannot divide them evenly.

    Args:
        seeds: Axes of the dims of arguments, by value number and dim.
    """
    reached = {value: {(d, 1): axes for d, axes in dims.items()} for value, dims in seeds.items()}
    for node in program.nodes:
        if node.spec.target in (CONVOLUTION, GROUP_NORM):
            reached[node.results[0]] = _pixels(reached.get(node.operands[0], {}))
        for value, places in _passed_on(node, reached).items():
            reached[value] = places | reached.get(value, {})
    return reached


def pixels_of(node: Node, reached: Reached) -> Mapping[int, Axes]:
    """Return the dims of pixels of the image that a convolution, a group norm, or its gradient reads."""
    target = node.spec.target
    if target.removesuffix("_backward") not in (CONVOLUTION, GROUP_NORM):
        return {}
    if target.startswith(CONVOLUTION) and node.spec["transposed"]:
        return {}
    image = node.operands[1 if target.endswith("_backward") else 0]
    return {d: axes for (d, _), axes in _pixels(reached.get(image, {})).items()}


def _pixels(places: Mapping[Place, Axes]) -> dict[Place, Axes]:
    return {(d, major): axes for (d, major), axes in places.items() if d >= FIRST_PIXELS and major == 1}


def _passed_on(node: Node, reached: Reached) -> Reached:
    """Return the factors of a call's results that it shares with reached factors of its operands."""
    rule, within = node.rule, dict[tuple[str, int], Axes]()
    for value, dims in zip(node.operands, rule.operands, strict=True):
        for (d, elements), axes in reached.get(value, {}).items():
            for factor, major in _places(rule, dims[d]):
                inner, rest = divmod(elements, major)
                if not rest and inner < rule.sizes[factor] and factor not in rule.replicate:
                    within[factor, inner] = axes
    found: Reached = {}
    for value, dims in zip(node.results, rule.results, strict=True) if within else ():
        for d, dim in enumerate(dims):
            for factor, major in _places(rule, dim):
                inside = ((i, axes) for (name, i), axes in within.items() if name == factor)
                found.setdefault(value, {}).update({(d, inner * major): axes for inner, axes in inside})
    return found


def _places(rule: Rule, dim: Dim) -> Iterator[tuple[str, int]]:
    """Yield the factors of a dim, each with the number of elements of the more major factors."""
    major = 1
    for factor in dim:
        yield factor, major
        major *= rule.sizes[factor]
