"""Dims of pixels, or of samples, that follow from dims of the program's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardc.dialects.dist.sharding import Axes
from shardc.dialects.rules.rule import Dim, Rule
from shardc.dialects.rules.spatial.convolution import FIRST_PIXELS
from shardc.passes.manager.program import Node, Program

CONVOLUTION, GROUP_NORM = "aten.convolution", "aten.native_group_norm"
Place = tuple[int, int]
"""A dim, and the number of elements of its factors that are more major than the one that is meant."""
Reached = dict[int, dict[Place, Axes]]
"""For each value, by number: the axes that reach factors of its dims."""


def follow_pixels(program: Program, seeds: Mapping[int, Mapping[int, Axes]]) -> Reached:
    """Return the dims of all values that follow from the ``seeds``' dims.

    A call passes a dim on to the results that share its factor, also where a reshape merges it with others. A
    convolution passes on what its windows move along, and a group norm its pixels, whether devices can share
    them as they are or not.

    Args:
        seeds: For each argument's value, by number: the axes of its dims.
    """
    reached = {value: {(d, 1): axes for d, axes in dims.items()} for value, dims in seeds.items()}
    for node in program.nodes:
        if node.spec.target in (CONVOLUTION, GROUP_NORM):
            reached[node.results[0]] = _pixels(reached.get(node.operands[0], {}))
        for value, places in _passed_on(node, reached).items():
            reached[value] = places | reached.get(value, {})
    return reached


def pixels_of(node: Node, reached: Reached) -> Mapping[int, Axes]:
    """The dims of pixels of the image that a convolution, a group norm, or the gradient of one reads."""
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
    """What is reached of a call's results: the factors of dims of its operands."""
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
    """The factors of a dim, each with the number of elements of the more major ones."""
    major = 1
    for factor in dim:
        yield factor, major
        major *= rule.sizes[factor]
