"""shardc's search over Sailor's profile: ``search_around`` the choices, ``cut_chain`` for each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from chain_costs import ChainCut
from chain_cut import cut_chain
from layer_times import Costs, Profile

from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.chosen import Chosen
from shardc.passes.search.solver.solve import Solution
from shardc.planning.auto.choose import Around, Floor, Start, search_around
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import DATA, PIPE, TENSOR, meshes_of


@dataclass(frozen=True)
class Case:
    """A question: devices in nodes of ``node``, and samples of the global batch."""

    devices: int
    node: int
    batch: int


@dataclass(frozen=True)
class Plan:
    """Stages with their layers and tensor degrees, data-parallel replicas, and samples of a micro-batch."""

    ends: tuple[int, ...]
    tensor: tuple[int, ...]
    data: int
    micro_batch: int
    seconds: float


@dataclass
class Search:
    """A search of one case. ``is_even``: only what a mesh can express, one tensor degree for all stages."""

    profile: Profile
    case: Case
    is_even: bool = True
    plans: dict[Choice, Plan] = field(default_factory=dict)

    def run(self, known: Plan | None = None) -> tuple[Around, Plan | None]:
        """Search, first the choice that the plan ``known`` belongs to. What cannot beat that is left out."""
        given = dict.fromkeys(self._even() if self.is_even else self._uneven())
        least_s = {choice: self._least_s(choice) for choice in given}
        limit_s, first = (inf, None) if known is None else (known.seconds, self._choice_of(known))
        self.least = {choice: s for choice, s in least_s.items() if s < limit_s or choice == first}
        least = ((seconds, choice) for choice, seconds in self.least.items())
        self._floor_s = min((seconds / choice.waiting for seconds, choice in least), default=0.0)
        start = None if first is None else Start(first, Floor(self._floor_s))
        around = search_around(self.least, self.find, start=start, known=self.least)
        return around, self.plans[around.found[0].choice] if around.found else None

    def _choice_of(self, plan: Plan) -> Choice:
        """Return the uneven choice that a plan belongs to."""
        stages, count = len(plan.ends), math.ceil(self.case.batch / (plan.micro_batch * plan.data))
        return Choice(stages, count, ((PIPE, stages), (DATA, plan.data)))

    def _even(self) -> Iterator[Choice]:
        """Yield choices on meshes of all devices, with micro-batches of equal size."""
        case = self.case
        for mesh in meshes_of(case.devices, case.node, case.batch, self.profile.count):
            samples = case.batch // mesh.get(DATA, 1)
            for size, degrees in self.profile.busy_s.items():
                if samples % size == 0 and mesh.get(TENSOR, 1) in degrees:
                    yield Choice(mesh.get(PIPE, 1), samples // size, tuple(mesh.items()))

    def _uneven(self) -> Iterator[Choice]:
        """Yield choices on some of the devices, each stage with a tensor degree of its own.

        A replica may run fewer micro-batches than others.
        """
        for stages in range(1, min(self.case.devices, self.profile.count) + 1):
            for data in range(1, self.case.devices // stages + 1):
                for size in self.profile.busy_s:
                    count = math.ceil(self.case.batch / (size * data))
                    yield Choice(stages, count, ((PIPE, stages), (DATA, data)))

    def _variants(self, choice: Choice) -> Iterator[Costs]:
        """Yield the costs of a choice, for each size of its micro-batches."""
        data = choice.mesh.get(DATA, 1)
        groups = self.case.devices // data
        for size, rows in sorted(self.profile.busy_s.items()):
            degrees = [t for t in sorted(rows) if t <= self.case.node and t in self.profile.layers]
            if self.is_even:
                tensor = choice.mesh.get(TENSOR, 1)
                degrees = [tensor] if tensor in degrees else []
            is_count = math.ceil(self.case.batch / (size * data)) == choice.micro_batches
            if degrees and is_count:
                yield Costs(self.profile, choice.stages, data, size, degrees, groups)

    def _least_s(self, choice: Choice) -> float:
        return min((_least_s(costs, choice.micro_batches) for costs in self._variants(choice)), default=inf)

    def find(self, choice: Choice, cutoff_s: float) -> Found | Unfit:
        """Return the fastest stages of a choice, exactly, or that none beats ``cutoff_s``.

        Measured times follow no rule, such as that more micro-batches take no less time. So the result says
        nothing of other choices but by the floor: it has no ``free_s``, and is as if memory were tight.
        """
        floor_s = self._floor_s * choice.waiting
        best: tuple[Costs, ChainCut] | None = None
        for costs in self._variants(choice):
            limit_s = best[1].seconds if best else cutoff_s
            if _least_s(costs, choice.micro_batches) < limit_s:
                cut = cut_chain(costs, choice.stages, choice.micro_batches, limit_s)
                best = (costs, cut) if cut else best
        if best is None:
            return Unfit(1.0, floor_s, max(cutoff_s, self.least[choice]))
        costs, cut = best
        tensor = tuple(costs.tensor[kind] for kind in cut.kinds)
        self.plans[choice] = Plan(cut.ends, tensor, costs.data, costs.micro_batch, cut.seconds)
        solution = Solution([], cut.seconds, cut.seconds, "proof", is_tight=True)
        return Found(Chosen([], [], []), solution, 0, 0.0, floor_s)


def _least_s(costs: Costs, micro_batches: int) -> float:
    """Return a lower bound on a step: work spread evenly over a replica's devices, and the shortest messages.

    Each stage has one message at least, each but the first has two.
    """
    kinds = range(len(costs.tensor))
    layers = [[costs.least_s(n, n + 1, kind) for kind in kinds] for n in range(costs.layers)]
    work = sum(min(s * t for s, t in zip(row, costs.tensor, strict=True)) for row in layers)
    most = min(costs.groups, costs.stages * max(costs.tensor))
    crossing, largest = sum(map(min, layers)), max(map(min, layers))
    message_s = costs.least_message_s
    slowest_s = max(work / most, largest) + message_s
    return (micro_batches - 1) * slowest_s + crossing + (2 * costs.stages - 1) * message_s + costs.least_end_s


def as_sailor(plan: Plan, gpu: str, zone: str) -> dict[str, Any]:
    """Return a plan in the form that Sailor's simulator reads."""
    starts = (0, *plan.ends[:-1])
    layers = [list(range(start, end)) for start, end in zip(starts, plan.ends, strict=True)]
    groups = [[[[[gpu, degree, zone]], degree]] * plan.data for degree in plan.tensor]
    pipeline = {
        "num_stages": len(layers),
        "layers_per_stage": layers,
        "tmp_per_stage": groups,
        "dp": [plan.data] * len(layers),
    }
    used = sum(plan.tensor) * plan.data
    return {"pipeline_list": [pipeline], "mbs": plan.micro_batch, "used_gpus": {gpu: used}}
