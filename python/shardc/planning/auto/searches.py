"""Outer searches for one step, with all of a device's memory and with less."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import torch

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import is_local
from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B, ScheduleForm
from shardc.diagnostics.passes.search import ContradictingLimits, NotSearched
from shardc.options.field import options_of
from shardc.options.parallelism import Parallelism
from shardc.options.recompute import Policy
from shardc.passes.search.choose import Found, Unfit
from shardc.passes.search.clock import Clock
from shardc.planning.auto.ahead import Begun, Done, InChild
from shardc.planning.auto.choose import Start
from shardc.planning.auto.fit import TRIES, Picked, search_to_fit
from shardc.planning.auto.kept import Answer, answered, asked
from shardc.planning.auto.known import Known
from shardc.planning.auto.limits import Fixed, contradiction
from shardc.planning.auto.measured.local_products import with_local_products
from shardc.planning.auto.pipelines.evictions import Evictions
from shardc.planning.auto.pipelines.stages import added_by_stages
from shardc.planning.auto.space import RECOMPUTED, Choice, choices, choices_on
from shardc.planning.auto.unequal import Unequal
from shardc.planning.candidates import Candidate
from shardc.planning.price import Priced
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question
from shardc.planning.verdict import verdict
from shardc.runtime.report import progress
from shardc.step.modules.recomputed import repeated_layers
from shardc.workers.forked import can_fork

ROOM = 0.92
"""Part of a GPU's memory that a first search may use; the allocator and temporaries need the rest.

For Llama-3-8B on 64 H100s the compiled plan needs 1.066 times the bytes that its search counted. A pick that
does not fit costs another search; one that leaves memory unused is slower by less than that."""


MeshOfStages = tuple[Mapping[str, int], int]
"""A mesh, and the number of stages along its axis ``pipe``; 1 if no axis has stages."""


class Searches:
    """Searches for one question on all devices of a cluster. Later searches reuse the results of earlier
    ones.

    Args:
        pricer: Pricer of the question on the cluster.
        cluster: Cluster whose devices are all used.
        micro_batches, recompute: Fixed values of these parts of the choice. Default: searched.
        search_seconds: Seconds after which each search ends with the best so far, as after a Ctrl-C.
        search_limits: Limits on choices: the most of ``tensor`` and of ``stages``.
        meshes: Meshes that the user gave, each with its number of stages. Default: searched.
        options: Other options of ``compile_step``, with which the picked plan is priced. A ``schedule``
            is the only one that is searched, and needs a pipeline.

    Raises:
        BadArgument, NotSearched, ContradictingLimits.
    """

    def __init__(
        self,
        pricer: Pricer,
        cluster: Cluster,
        micro_batches: int | None = None,
        recompute: object = None,
        search_seconds: float | None = None,
        search_limits: Mapping[str, int] | None = None,
        meshes: Sequence[MeshOfStages] = (),
        **options: object,
    ) -> None:
        for name, value in (("search_seconds", search_seconds), ("search_limits", search_limits)):
            options_of(Parallelism)[name].check(value, "compile_step")
        question = pricer.question
        policies = policies_of(question.model, recompute)
        balances = options.get("balance_activations") or None
        fixed = Fixed(micro_batches, options.get("schedule"), balances, **(search_limits or {}))
        self._given = _choices(question, cluster, policies, fixed, meshes)
        if is_local(cluster.name) and self._given:
            parts = sorted({choice.micro_batches for choice in self._given})
            program = pricer.program(self._given[0].candidate)
            cluster = with_local_products(cluster, program, question.samples, parts)
            pricer = pricer.on(cluster)
        self.pricer, self.cluster, self._evictions = pricer, cluster, Evictions(cluster)
        self._price, self._priced_with = partial(pricer.price, **options), options
        sizes = question.name, question.samples, question.layers, question.tokens
        layers = tuple(repeated_layers(question.model))  # modules that may be recomputed
        named = (
            fixed,
            [(tuple(mesh.items()), stages) for mesh, stages in meshes],
            sorted(options.items(), key=str),
        )
        self._fixed = sizes, policies, layers, search_seconds, named
        self._clock = Clock(inf if search_seconds is None else search_seconds, hears=True)
        devices = cluster.used(cluster.size)
        capacity_bytes = min(device.memory_bytes for device in devices)
        self._room = ROOM if all(device.has_caching_allocator for device in devices) else 1.0
        self._start: Start | None = None
        self._added: Callable[[Choice], float] | None = None
        self._unequal: Unequal | None = None
        """The cluster's kinds of device, if there are several."""
        self._known = Known(self._found, capacity_bytes, lambda: self._clock.is_over)

    @property
    def is_interrupted(self) -> bool:
        """True if the user pressed Ctrl-C during a search."""
        return self._clock.is_interrupted

    @property
    def key(self) -> object:
        """All inputs of the searches, as a key of caches."""
        return self.pricer.key(), self.cluster, self._fixed

    def answer(self) -> Answer:
        """Return the pick of :meth:`best`, cached for each question. Raises NoPlanFound, NoPlanYet."""

        def search() -> Answer:
            with self.pricer.beside():  # after the capture for the key, which its children have, too
                picked = self._explained(self.best())
            best = picked.priced.on(self.cluster)
            return asked(picked, verdict(self.pricer.question, best), best.time.seconds)

        return answered(self.key, search)

    def _explained(self, picked: Picked) -> Picked:
        """Return a pick with the runners-up of its products. The search for them may find a cheaper plan."""
        if self._clock.is_enough:
            return picked
        progress.step("runners-up")
        priced = self._price(picked.priced.candidate)
        is_kept = priced.on(self.cluster).fits or not picked.priced.on(self.cluster).fits
        return replace(picked, priced=priced) if is_kept else picked

    def picked(self, answer: Answer) -> Picked:
        """Return an answer's pick with the price of the compiled plan."""
        if answer.priced is not None:
            return Picked(answer.around, answer.priced)
        with self.pricer.beside():
            return Picked(answer.around, self._price(answer.candidate))

    def best(self, within: float = 1.0, room: float | None = None, tries: int = TRIES) -> Picked:
        """Search the cheapest plan that needs at most the part ``within`` of a device's memory.

        A search starts at the choice that the search before it picked. ``room``: the part of memory that the
        first search may use; default: what is expected to leave enough for the rest (:data:`ROOM`). Raises
        NoPlanFound, NoPlanYet.
        """
        if self._given:
            self.pricer.look(self._given[0].candidate)
            self._see_towers()
            self._added = self._added or self._added_by_stages()
            self._add_unequal()
        with self._clock.running():
            picked = search_to_fit(
                self._given,
                self._known,
                self._priced,
                self.cluster,
                self._clock,
                within=within,
                room=within * self._room if room is None else room,
                tries=tries,
                start=self._start,
                begin=self._begin,
                added=self._added,
                least=self.pricer.least_part,
                pace=None if self._unequal is None else self._unequal.pace,
                evicting=self._evictions.seconds,
                ahead=partial(self.pricer.begin, **self._priced_with),
            )
        self._start = picked.around.start
        return picked

    def _added_by_stages(self) -> Callable[[Choice], float] | None:
        """Return what a choice's stages take in addition; None if no choice has stages."""
        if all(choice.stages == 1 for choice in self._given):
            return None
        first = self._given[0]
        return added_by_stages(self.pricer.graph(first.candidate), first, self.cluster)

    def _see_towers(self) -> None:
        """Let choices with stages know how much of the step is on their longest path."""
        if self._added is not None or all(choice.stages == 1 for choice in self._given):
            return
        graph = self.pricer.graph(self._given[0].candidate)
        given = [replace(choice, form=graph.on_stages(choice.form, choice.stages)) for choice in self._given]
        # How few micro-batches balanced ranks hold is known for a chain.
        chains = [choice for choice in given if choice.form.path == 1 or not choice.form.balances]
        self._given = chains or given

    def _add_unequal(self) -> None:
        """Add choices with unequal shares and stages, if there are several kinds of device."""
        first = self._given[0]
        if self._unequal is None and first.stages == 1 and len(self.cluster.used(self.cluster.size)) > 1:
            self._unequal = Unequal.of(self.pricer.graph(first.candidate), self.cluster)
            self._given = [*self._unequal.choices(self._given, self.pricer.question.samples)]

    def _priced(self, candidate: Candidate) -> Priced:
        progress.step(f"price of {candidate.text}")
        return self._price(candidate, explain="plan")

    def _found(self, candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        return self._evictions.search(self.pricer, candidate, cutoff_s, self._clock)

    def _begin(self, candidate: Candidate, cutoff_s: float) -> Begun:
        """Begin the search for a candidate's best plan, in a forked child that shares what was read."""
        known = self._known.known(candidate, cutoff_s)
        if known is not None:
            return Done(known)
        progress.step(candidate.text)
        if not can_fork():
            return Done(self._known(candidate, cutoff_s))
        self.pricer.read(candidate)

        def keep(answer: Found | Unfit) -> None:
            self._known.keep(candidate, answer)
            self.pricer.keep(candidate, answer)

        return InChild(lambda: self._found(candidate, cutoff_s), keep, self._clock)


def _choices(
    question: Question,
    cluster: Cluster,
    policies: Sequence[Policy],
    fixed: Fixed,
    meshes: Sequence[MeshOfStages],
) -> list[Choice]:
    """Return the choices that the user's options leave. Raises ContradictingLimits, if they leave none."""

    def left(fixed: Fixed) -> Iterator[Choice]:
        sizes = question.samples, question.layers
        forms = forms_of(fixed.schedule, balances=bool(fixed.balance_activations))
        asked = policies, fixed.micro_batches, forms
        for choice in (
            itertools.chain.from_iterable(choices_on(*mesh, *sizes, *asked) for mesh in meshes)
            if meshes
            else choices(cluster, *sizes, *asked)
        ):
            if choice.stages > 1 or (fixed.schedule is None and not fixed.balance_activations):
                yield from filter(None, [fixed.within(choice, question.samples)])

    found = list(dict.fromkeys(left(fixed)))
    if fixed.given and not found:
        names = contradiction(fixed.given, lambda names: any(True for _ in left(fixed.only(names))))
        raise ContradictingLimits(samples=question.samples, devices=cluster.size, options=fixed.text(names))
    return found


def forms_of(schedule: object, *, balances: bool = False) -> Sequence[ScheduleForm]:
    """Return the schedules to search: all, or the given one; 1F1B for one that has no closed form.

    ``balances``: only those that keep activations on other ranks.
    """
    given = [form for form in FORMS if schedule in (None, form.name)] or [ONE_F_ONE_B]
    return [form for form in given if form.balances] if balances else given


def policies_of(model: torch.nn.Module, recompute: object) -> Sequence[Policy]:
    """Return the recomputation policies to search. Raises NotSearched."""
    if recompute in RECOMPUTED:
        return [RECOMPUTED[RECOMPUTED.index(recompute)]]
    if recompute is not None:
        raise NotSearched(option="recompute of single modules")
    return RECOMPUTED if any(True for _ in repeated_layers(model)) else RECOMPUTED[:1]
