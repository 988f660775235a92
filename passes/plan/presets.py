"""Presets: data parallel, ZeRO, tensor and sequence parallel as annotations on a few arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from operator import itemgetter

from shardc.diagnostics.base import remark
from shardc.diagnostics.passes.plan import ExpertsInALoop, ExpertsNotDivided, HeadsNotDivided, NoExperts
from shardc.diagnostics.styles import NoPlanOfModel
from shardc.dialects.dist.mesh import Mesh
from shardc.options.presets import CONTEXT_PRESETS, TENSOR_PRESETS, batch_axes, is_searched, plan_terms
from shardc.passes.experts.looped import Looped
from shardc.passes.plan.attention import ALLGATHER, ULYSSES, Attention, heads_problem
from shardc.passes.plan.column_row import Cut
from shardc.passes.plan.plan import ATTENTION, Argument, DimNames, Entry, Plan
from shardc.passes.plan.plan_check import ways_problem
from shardc.passes.plan.shares import share_out


@dataclass(frozen=True)
class Setting:
    """The inputs of a preset."""

    arguments: Sequence[Argument]
    mesh: Mesh
    column_row: Mapping[str, Cut]
    """Parameter name -> its split by tensor parallelism."""
    experts: Mapping[str, Cut] = field(default_factory=dict)
    """Parameter name -> its split by expert parallelism."""
    given: bool = False
    """True if ``column_row`` is a user's complete plan: all other parameters stay whole."""
    routed: Sequence[str] = ()
    """Parameters [experts, ...] of routed experts: each row is multiplied by the matrix of one expert."""
    attention: Attention = field(default_factory=Attention)
    looped: Looped | None = None
    """Experts that the program multiplies one by one, in a loop."""
    waveforms: frozenset[str] = frozenset()
    """The inputs [batch, samples] whose samples a convolution reads."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Input of three dims -> the dim that layers sum over, 1 or 2; the other one is time."""

    def of_role(self, role: str) -> list[Argument]:
        return [a for a in self.arguments if a.role == role]


def read_preset(text: str, setting: Setting) -> Plan:
    """Return the plan of a product of presets: ``data``, ``zero3*tensor``, ``zero2:fsdp*sequence:tp``.

    Raises the errors of :func:`~shardc.options.presets.plan_terms`.
    """
    plan = Plan(text)
    terms = plan_terms(text, {a.name: a.size for a in setting.mesh.space})
    heads = prod(setting.mesh.size(axis) for name, axis in terms if name in TENSOR_PRESETS)
    decide_attention(plan, setting, [term for term in terms if term[0] in CONTEXT_PRESETS], heads)
    # Experts come after batches and sequences. Axes that split heads inside attention split the sequence
    # last, so that an all-to-all exchanges adjacent parts.
    terms = _highest_stage_first(terms)
    for name, axis in sorted(terms, key=lambda t: (t[0] == "expert", plan.attention.get(t[1]) == ULYSSES)):
        APPLY[name](plan, setting, axis)
    if is_searched(text):
        names = [axis.name for axis in setting.mesh.space if axis.name != plan.pipeline]
        for axis in batch_axes(names, setting.mesh.shared_names):
            data(plan, setting, axis)
    close_inputs(plan, setting)
    return plan


def _highest_stage_first(terms: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return a product's terms with those of ZeRO ordered among themselves.

    A lower stage then splits what a device holds of a higher one's parameters, as their gradients are split.
    """
    of_zero = iter(
        sorted((term for term in terms if term[0].startswith("zero")), reverse=True, key=itemgetter(0))
    )
    return [next(of_zero) if term[0].startswith("zero") else term for term in terms]


def data(plan: Plan, setting: Setting, axis: str, why: str = "data") -> None:
    """Split the batch dim of every input. Gradients become partial and are reduced before they are used."""
    batch = _common_size(setting, 0)
    for argument in setting.of_role("input"):
        if argument.shape and argument.shape[0] == batch:
            plan.say(argument.key, _one_dim(argument, 0, (axis,)), closed=True, why=why)


def zero(plan: Plan, setting: Setting, axis: str, *, stage: int) -> None:
    """Data parallelism, plus optimizer state (stage 1), gradients (2) and parameters (3) split over its axis.

    Rajbhandari et al., ZeRO (SC20). These splits are refinements, so they never override tensor parallelism.
    """
    data(plan, setting, axis, f"zero{stage}")
    for argument in setting.of_role("opt_state"):
        if argument.shape:
            plan.refine(argument.key, 1, axis, -1, why=f"zero{stage}")
    for argument in setting.of_role("param"):
        if stage >= 2:
            plan.refine(("grad", argument.name), 1, axis, -1, why=f"zero{stage}")
        if stage >= 3:
            plan.refine(argument.key, 1, axis, -1, why=f"zero{stage}")


def tensor(plan: Plan, setting: Setting, axis: str) -> None:
    """Split weights as Megatron does (Shoeybi et al. 2019).

    Annotates the weights of the model's own plan, else the first weight of each chain of matmuls; propagation
    then splits the rows of the second weight.
    """
    if setting.given:
        return _as_given(plan, setting, axis)
    ways = setting.mesh.size(axis)
    for argument in setting.of_role("param"):
        cut = setting.column_row.get(argument.name)
        if cut is None or (cut.fused is not None and not cut.fused.divides(ways)):
            continue
        if argument.shape[cut.dim] >= ways:
            plan.say(argument.key, _one_dim(argument, cut.dim, (axis,)), closed=False, why="tensor")
            continue
        problem = f"dim {cut.dim} has too few elements for {ways} devices along {axis}"
        remark("NotCut", f"{argument.name} {list(argument.shape)} stays whole: {problem}")


def _as_given(plan: Plan, setting: Setting, axis: str) -> None:
    """Split the parameters that the user's own plan names, and no others."""
    for argument in setting.of_role("param"):
        cut = setting.column_row.get(argument.name)
        axes = () if cut is None else (axis,)
        plan.say(argument.key, _one_dim(argument, cut.dim if cut else 0, axes), closed=True, why="styles")


def experts(plan: Plan, setting: Setting, axis: str) -> None:
    """Split the weights of experts, [experts, ...], so that each device has some of the experts.

    Raises NoPlanOfModel if no parameter is known to hold experts.
    """
    for argument in setting.of_role("param"):
        cut = setting.experts.get(argument.name)
        if cut is not None:
            plan.say(argument.key, _one_dim(argument, cut.dim, (axis,)), closed=True, why="experts")
    if not setting.experts:
        raise NoPlanOfModel(model="the model")


def expert(plan: Plan, setting: Setting, axis: str) -> None:
    """Split the batch and the experts over one axis: an all-to-all sends rows to their experts, another
    returns them.

    The axis splits the batch last, so that an all-to-all moves adjacent rows. Other parameters stay whole,
    and their gradients are reduced, as under ``data``. Raises NoExperts, ExpertsInALoop, ExpertsNotDivided.
    """
    data(plan, setting, axis, "expert")
    routed, ways = set(setting.routed), setting.mesh.size(axis)
    for argument in setting.of_role("param"):
        if argument.name not in routed:
            continue
        count = argument.shape[0]
        if count % ways:
            fits = [n for n in range(1, count + 1) if count % n == 0]
            nearest = min(fits, key=lambda n: abs(n - ways))
            raise ExpertsNotDivided(experts=count, name=argument.name, axis=axis, ways=ways, nearest=nearest)
        plan.say(argument.key, _one_dim(argument, 0, (axis,)), closed=True, why="expert")
    if not routed and (found := setting.looped) is not None:
        raise ExpertsInALoop(name=found.name, experts=found.experts, share=found.share, where=found.where)
    if not routed:
        raise NoExperts()


def sequence(plan: Plan, setting: Setting, axis: str) -> None:
    """Tensor parallelism, with activations between its regions split along the sequence (Korthikanti et al.
    2022).
    """
    tensor(plan, setting, axis)
    length = _common_size(setting, 1)
    for argument in setting.of_role("input"):
        if len(argument.shape) > 1 and argument.shape[1] == length and length >= setting.mesh.size(axis):
            plan.refine(argument.key, 1, axis, 1, why="sequence")


def context(plan: Plan, setting: Setting, axis: str) -> None:
    """Split the sequence from the embedding to the loss.

    The sequence is dim 1 of integer inputs [batch, sequence] and of other inputs with the same size, the rows
    of images, the time of features [batch, time, feature] or [batch, feature, time], the samples of waveforms
    that are convolved, [batch, samples], and for any other input the rows of its attention. Layers sum over
    features; if that does not tell the two apart, time is the longer dim. Gradients of parameters become
    partial, as under ``data``.
    """
    inputs, ways = setting.of_role("input"), setting.mesh.size(axis)
    lengths = {a.shape[1] for a in inputs if a.counts and len(a.shape) == 2 and a.shape[1] >= ways}
    for argument in inputs:
        dim = (
            1
            if len(argument.shape) > 1 and argument.shape[1] in lengths
            else _rows_or_time(argument, setting)
        )
        if argument.name in setting.waveforms:
            dim = 1
        if dim and argument.shape[dim] >= ways:
            plan.say(argument.key, _one_dim(argument, dim, (axis,)), closed=True, why="context")
    plan.refine(ATTENTION, 0, axis, 2, why="context")


def _rows_or_time(argument: Argument, setting: Setting) -> int:
    """Return the dim of an image's rows, or of time in features; 0 for other inputs."""
    shape = argument.shape
    if argument.counts or len(shape) < 3:
        return 0
    if len(shape) > 3:
        return len(shape) - 2
    return 3 - setting.features.get(argument.name, 1 if shape[2] > shape[1] else 2)


def decide_attention(plan: Plan, setting: Setting, terms: Sequence[tuple[str, str]], head_ways: int) -> None:
    """Choose the method of attention for each axis that splits a sequence.

    A preset names the method; under ``context`` it is the one that sends fewer bytes. Tensor parallelism
    splits heads ``head_ways`` ways. Raises HeadsNotDivided.
    """
    attention = setting.attention
    for name, axis in sorted(terms, key=lambda term: term[0] == "context"):
        ways = setting.mesh.size(axis)
        how = attention.cheapest(ways, head_ways) if name == "context" else name
        if how == ULYSSES:
            _check_heads(attention, axis, ways, head_ways)
            head_ways *= ways
        if how != ALLGATHER:
            plan.attention[axis] = how


def _check_heads(attention: Attention, axis: str, ways: int, head_ways: int) -> None:
    for call in attention.calls:
        heads = call["q"].shape[1]
        if heads_problem(call, ways, head_ways):
            fitting = [n for n in range(1, ways) if not heads_problem(call, n, head_ways)]
            raise HeadsNotDivided(heads=heads, axis=axis, ways=ways, nearest=max(fitting), others=head_ways)


def pipeline(plan: Plan, setting: Setting, axis: str) -> None:
    """Set the axis of stages. Nothing is split along it; ``pipe-cut`` gives each of its ranks some stages."""
    plan.pipeline = axis


Preset = Callable[[Plan, Setting, str], None]
APPLY: dict[str, Preset] = {
    "data": data,
    "zero1": partial(zero, stage=1),
    "zero2": partial(zero, stage=2),
    "zero3": partial(zero, stage=3),
    "tensor": tensor,
    "sequence": sequence,
    "context": context,
    "allgather": context,
    "ulysses": context,
    "ring": context,
    "pipeline": pipeline,
    "experts": experts,
    "expert": expert,
}
"""The functions of ``shardc.options.presets.PRESETS``."""


def close_inputs(plan: Plan, setting: Setting) -> None:
    """Split batches over time axes, which come after all space axes, and close inputs to propagation.

    If an axis has unequal shares, batches are split into these. Raises TooManyWays, SharesOfNoBatch,
    ShareWithoutRows.
    """
    batch = _common_size(setting, 0)
    share_out(plan, setting.of_role("input"), setting.mesh)
    times = [a.name for a in setting.mesh.axes if a.kind == "time" and not a.trips]
    for argument in setting.of_role("input"):
        entry = plan.entries.get(argument.key, Entry())
        named = {axis for axes in entry.dims or () for axis in axes}
        is_batch = bool(argument.shape) and argument.shape[0] == batch
        cut = tuple(t for t in times if is_batch and t not in named)
        why = entry.why if entry.dims else "input"
        plan.say(argument.key, _one_dim(argument, 0, cut), closed=True, why=why)
        dims = plan.entries[argument.key].dims
        if dims and (problem := ways_problem(argument, 0, dims[0], setting.mesh)):
            raise problem


def _one_dim(argument: Argument, dim: int, axes: tuple[str, ...]) -> DimNames:
    return tuple(axes if d == dim else () for d in range(len(argument.shape)))


def _common_size(setting: Setting, dim: int) -> int:
    """Return the most frequent size of inputs in ``dim`` (0 batch, 1 sequence); 0 if none has the dim."""
    sizes = Counter(a.shape[dim] for a in setting.of_role("input") if len(a.shape) > dim)
    return sizes.most_common(1)[0][0] if sizes else 0
