"""Folding of equal layers, whose calls a search decides together."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardc.cost.work import MATMULS
from shardc.dialects.aten.schema import COUNTED, position
from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.repetitions import Repetition, repetitions


@dataclass(frozen=True)
class Omitted:
    """Equal layers of a list of modules, some of which a program omits.

    ``name``: of the list. ``first``: number of the first of the layers in the list. ``standing``: how many of
    them the program has, as :data:`STANDING` periods. ``periods``: how many periods it omits.
    """

    name: str
    first: int
    standing: int
    periods: int

    def has(self, parameter: str) -> bool:
        """Return whether a parameter of that name is in a layer that the program has."""
        head = f"{self.name}." if self.name else ""
        number = parameter.removeprefix(head).partition(".")[0]
        is_item = parameter.startswith(head) and number.isdecimal()
        return is_item and self.first <= int(number) < self.first + self.standing


More = tuple[Omitted, ...]


class NotFolded(Exception):
    """The layers that stand for omitted layers were not found in forward or backward."""


@dataclass(frozen=True)
class Folded:
    """Colour and weight of each call.

    Corresponding calls of equal layers have the same colour. The weight is the number of calls for which a
    call stands. ``aside``: calls among those of equal layers that are made once for all layers.
    """

    colours: list[int]
    weights: list[float]
    aside: frozenset[int] = frozenset()

    def runs(self, calls: Iterable[int]) -> Iterator[tuple[float, list[int]]]:
        """Yield successive calls of equal weight, and the weight. Calls that are :attr:`aside` are left
        out.
        """
        others = (number for number in calls if number not in self.aside)
        for weight, group in itertools.groupby(others, key=self.weights.__getitem__):
            yield weight, list(group)

    def own(self, program: Program) -> frozenset[int]:
        """Return the calls that are like none of an equal layer, such as those of embeddings and the loss."""
        counts = Counter(self.colours)
        keys = [call_key(node) for node in program.nodes]
        repeated = {key for key, colour in zip(keys, self.colours, strict=True) if counts[colour] > 1}
        return frozenset(number for number, key in enumerate(keys) if key not in repeated)


def folded(program: Program, more: More = ()) -> Folded:
    """Return the equal layers of a step.

    Layers are the longest repetitions of calls with equal specifications in each phase. Recomputation is part
    of backward. If a repetition begins within a layer, the rest of the first and last layers is not folded.

    Args:
        more: Layers of which the program has only :data:`STANDING` periods.

    Raises:
        NotFolded: A sequence in ``more`` was not found.
    """
    found: list[Hashable] = []
    weights: list[float] = []
    aside = set[int]()
    parameters, learned = _parameters(program), _learned(program)
    for phase, group in itertools.groupby(program.nodes, key=part_of):
        nodes = list(group)
        base, seen = len(found), set[Omitted]()
        keys: list[Hashable] = [call_key(node) for node in nodes]
        if phase == "optimizer" and not more:
            updated = _updated(nodes, parameters, _readers(program, found, parameters))
            keys = list(zip(keys, updated, strict=True))
        found += [(phase, "alone", base + place) for place in range(len(nodes))]
        weights += [1.0] * len(nodes)
        read = [_is_product(node) and any(v in parameters for v in node.operands) for node in nodes]
        reading = [place for place, node in enumerate(nodes) if not learned.isdisjoint(node.operands)]
        sequence, products = [keys[place] for place in reading], [read[place] for place in reading]
        for repeated in repetitions(sequence, is_few=bool(more), products=products):
            layers = _layers([nodes[reading[number]] for number in repeated.places], parameters, more)
            seen |= {layers} if layers else set()
            weight = 1 + (layers.periods * repeated.period / repeated.length if layers else 0)
            start, end = reading[repeated.places[0]], reading[repeated.places[-1]]
            aside.update(range(base + start, base + end))
            for number, places in enumerate(_equal(repeated, reading, keys)):
                aside.difference_update(base + place for place in places)
                for place in places:
                    found[base + place] = phase, repeated.first, number
                    weights[base + place] = weight
        if phase in ("forward", "backward") and not {*more} <= seen:
            raise NotFolded(phase)
    numbers_of: dict[Hashable, int] = {}
    colours = [numbers_of.setdefault(colour, len(numbers_of)) for colour in found]
    return Folded(colours, weights, frozenset(aside))


def _equal(repeated: Repetition, reading: Sequence[int], keys: Sequence[Hashable]) -> Iterator[Sequence[int]]:
    """Yield the places of the calls, one of each period, that correspond to each other.

    ``reading``: the calls that were compared, those whose results depend on parameters. What does not, such
    as a mask or an angle, may be made by the first layer for all; such calls correspond if each period has
    them at the same place before a call that was compared.
    """
    made: dict[Hashable, list[int]] = defaultdict(list)
    for offset in range(repeated.period):
        numbers = repeated.places[offset :: repeated.period]
        yield [reading[number] for number in numbers]
        for number in numbers:
            start = reading[number - 1] + 1 if number else 0
            for place in range(start, reading[number]):
                made[offset, reading[number] - place, keys[place]].append(place)
    yield from (places for places in made.values() if len(places) == repeated.length // repeated.period)


def call_key(node: Node) -> Hashable:
    """Return what corresponding calls of equal layers share: operator, arguments, types, and phase.

    Each random draw has a number of its own, which does not count.
    """
    spec, phase = node.spec, phase_of(node.op)
    if spec.target not in COUNTED:
        return spec, phase
    number = position(spec.target, "op")
    return spec.target, (*spec.args[:number], *spec.args[number + 1 :]), spec.results, phase


def _readers(
    program: Program, found: Sequence[Hashable], parameters: Mapping[int, str]
) -> dict[str, frozenset[Hashable]]:
    """Return the colours of the calls that read each parameter, among the first calls, which have them."""
    read: dict[str, set[Hashable]] = {}
    for node, colour in zip(program.nodes, found, strict=False):
        for value in node.operands:
            if value in parameters:
                read.setdefault(parameters[value], set()).add(colour)
    return {name: frozenset(colours) for name, colours in read.items()}


def _updated(
    nodes: Sequence[Node], parameters: Mapping[int, str], readers: Mapping[str, Hashable]
) -> list[Hashable]:
    """Return for each call of an update the colours of the calls that read its parameter; None without one.

    Parameters that different calls read, such as those of layers cut in turn, are not updated alike.
    """
    owners, found = dict(parameters), list[Hashable]()
    for node in nodes:
        owner = next((owners[value] for value in node.operands if value in owners), None)
        if owner is not None:
            owners |= dict.fromkeys(node.results, owner)
        found.append(None if owner is None else readers.get(owner))
    return found


def _is_product(node: Node) -> bool:
    return node.spec.target in MATMULS or "convolution" in node.spec.target


def _parameters(program: Program) -> dict[int, str]:
    """Return, for each value that is or views a parameter or its optimizer state, the parameter's name."""
    found: dict[int, str] = {}
    for place, value in enumerate(program.arguments):
        role, name = program.argument_key(place)
        if role in ("param", "opt_state"):
            found[value] = name
    for node in program.nodes:
        if node.spec.target in VIEWS and node.operands and node.operands[0] in found:
            found |= dict.fromkeys(node.results, found[node.operands[0]])
    return found


def _learned(program: Program) -> set[int]:
    """Return the values that depend on parameters or on optimizer state."""
    roles = [role for role, _ in program.argument_keys()]
    given = zip(program.arguments, roles, strict=True)
    found = {value for value, role in given if role in ("param", "opt_state")}
    for node in program.nodes:
        if not found.isdisjoint(node.operands):
            found.update(node.results)
    return found


def _layers(nodes: Sequence[Node], parameters: Mapping[int, str], more: More) -> Omitted | None:
    """Return the layers in ``more`` whose parameters the calls read most often; None if others are."""
    names = [parameters[value] for node in nodes for value in node.operands if value in parameters]
    votes = Counter(next((layers for layers in more if layers.has(name)), None) for name in names)
    return votes.most_common(1)[0][0] if votes else None


def part_of(node: Node) -> str:
    """Return the phase of a call; recomputed calls are part of backward."""
    phase = phase_of(node.op)
    return "backward" if phase == "recompute" else phase
