"""Options that spread a step over devices: mesh, plan, micro-batches and others."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.cost.cluster.names import find_cluster, is_local
from shardc.diagnostics.cli import BadMesh
from shardc.diagnostics.passes.accumulate import OneMicroBatch
from shardc.diagnostics.passes.pipeline import RerunOfParts, ReshardOfStages
from shardc.diagnostics.passes.plan import BadMeshSpec
from shardc.diagnostics.passes.recompute import BudgetAndRecompute, BudgetOfStages
from shardc.diagnostics.passes.search import NothingSearched, NotSearched
from shardc.diagnostics.passes.shares import SharesUnsupported
from shardc.options.constraints import parse_constraints
from shardc.options.experts import Experts, Overflow, copies_of, read_copies
from shardc.options.field import Group, Hint, option, required, size_of
from shardc.options.plan_file import load_plan_file, named_file
from shardc.options.presets import AUTO, PRESETS, PRODUCTS, SEARCHED_AXES, is_searched, plan_terms, product_of
from shardc.options.recompute import Recompute, read_recompute
from shardc.options.shares import Shares, read_shares, settled, shares_of

PlanLike = str | Path | Mapping[str, object]
ClusterLike = str | Path | Cluster
MICRO = "micro"
"""Time axis of micro-batches."""
MOST_TRIALS = 64
MOST_DEVICES = 2**31 - 1
"""Ranks are 32-bit C integers in PyTorch's process groups."""


def parallelism_of(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return the given options of parallelism by name, from the group's mapping and from keywords."""
    group = given.get("parallelism")
    named = {**(group if isinstance(group, Mapping) else {}), **given}
    return {name: value for name, value in named.items() if value is not None}


def lacks_mesh(given: Mapping[str, object]) -> bool:
    """Return whether a search must pick the mesh: the plan is ``auto`` and no mesh is given."""
    named, group = parallelism_of(given), given.get("parallelism")
    return named.get("plan") == AUTO and named.get("mesh") is None and not isinstance(group, Parallelism)


def parse_mesh(text: str) -> dict[str, int]:
    """Parse ``data=2,tensor=4`` as ``{"data": 2, "tensor": 4}``, in that order. Raises BadMesh."""
    mesh: dict[str, int] = {}
    for axis in text.split(","):
        name, equals, size = (part.strip() for part in axis.partition("="))
        if problem := _problem(name, equals, size, mesh):
            raise BadMesh(mesh=text, problem=problem, where="--mesh")
        mesh[name] = int(size)
    return mesh


LIMITS = ("tensor", "stages")
"""What ``search_limits`` may limit."""


def parse_limits(text: str) -> object:
    """Parse ``tensor=8,stages=1``; return any other text unchanged."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(value.strip().isdecimal() for _, _, value in pairs):
        return text
    return {name.strip(): int(value) for name, _, value in pairs}


def limits_of(value: object) -> object:
    """Return valid limits unchanged, and text in place of others, which the check of types refuses."""
    if not isinstance(value, Mapping) or not value or not set(value) <= {*LIMITS}:
        return repr(value)
    return value if all(type(most) is int and most > 0 for most in value.values()) else repr(value)


@dataclass(frozen=True)
class Parallelism(Group):
    """Options that spread tensors and work over devices.

    Example:
        >>> parallelism = shardc.Parallelism({"data": 2, "tensor": 2}, "zero3*tensor", micro_batches=2)
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, parallelism=parallelism)
    """

    mesh: Mapping[str, int] = required(
        "Axes of the mesh and their sizes, the most major first.",
        Hint("a mapping of axis names to sizes", 'as in mesh={"data": 2, "tensor": 2}', "AXIS=SIZE,..."),
        short="m",
        parse=parse_mesh,
    )
    plan: PlanLike = option(
        "data",
        f"What is sharded: a preset ({', '.join((*PRESETS, *PRODUCTS))}), a product of presets over "
        "different axes (data*tensor), auto (searched for the cluster), a saved plan.json, or, in Python, a "
        "mapping from name patterns to shardings or to styles (of parallelize_module, of transformers' "
        "tp_plan), or from presets to such mappings.",
        Hint(
            "a preset's name, the path of a saved plan, or a mapping with name patterns as keys",
            'as in plan="data*tensor", plan="plan.json" or plan={"*.q_proj.weight": ["tensor", None]}',
        ),
    )
    micro_batches: int = option(
        1,
        "Split each rank's batch into this many parts that run one after the other; gradients accumulate.",
        at_least=1,
        at_most=MOST_DEVICES,
        was="microbatches",
    )
    per_micro_batch: bool = option(
        False,
        "Compute loss, gradients and running statistics of each micro-batch separately and "
        "average them, as gradient accumulation does. This changes the mathematics if a loss "
        "mixes the samples of a batch.",
    )
    cluster: ClusterLike | None = option(
        None,
        "Cluster that the step runs on; its links decide which collectives change a tensor's "
        "layout. A node (h100), nodes (h100-8x64: 64 nodes of 8 devices), local for this machine, "
        "or a YAML file. If not given, the bytes that devices send decide.",
        Hint(
            "a cluster's name, the path of its file, or a Cluster",
            'as in cluster="h100-8x64" or cluster="cluster.yaml"',
            "NAME|FILE",
        ),
    )
    recompute: Recompute = option(
        "none",
        "Forward ops that backward runs again instead of keeping their results: none; all ops of "
        "each repeated layer (full); all of these but matmuls, convolutions, attention and "
        "communication (selective); modules by name, each in full; or a policy for each pipeline "
        "stage as a whole.",
        Hint(
            "none, full or selective, or a list of modules, or of these with one for each stage",
            'as in recompute="full", recompute=["layers.*"], or recompute=["full", "none"] for two stages',
            "WHAT,...",
        ),
        parse=read_recompute,
    )
    offload: Literal["optimizer"] | None = option(
        None,
        "Tensors that lie in the host's memory between uses: the optimizer's state. shardc plan "
        "estimates it; no step supports it yet.",
    )
    reshard_after_forward: bool = option(
        True,
        "Free parameters that a forward gathered (ZeRO-3), and gather them again in backward. "
        "Without, fewer bytes are sent and more memory is needed, as in FSDP.",
    )
    expert_capacity: float | None = option(
        None,
        "With the preset expert, room for the rows that a device sends to another's experts, as a "
        "multiple of an equal share: 1.25 sends 1.25 / n of all rows to each of n devices, not "
        "counting rows of expert_copies. A step that needs more room stops; no row is dropped. If "
        "not given, there is room for all rows.",
        above=0,
    )
    memory_budget: int | None = option(
        None,
        "Peak memory, in bytes, that a step's tensors may take on a device, parameters, optimizer "
        "state and batch included. To keep the planned peak within it, backward recomputes "
        "forward ops that cost the least work.",
        Hint(
            "a whole number of bytes above 0, or a text such as 40GB",
            'as in memory_budget="40GB" or memory_budget=40_000_000_000',
            "BYTES",
        ),
        above=0,
        parse=size_of,
        convert=size_of,
    )

    constraints: Mapping[str, object] | None = option(
        None,
        "Layouts of modules' outputs, by patterns of module names: for each dim the axes that "
        "shard it, None for no axis, '?' for axes that propagation chooses; or 'whole'. In a "
        "model's code, shardc.constrain does the same.",
        Hint(
            "a mapping of modules' names to layouts",
            'as in constraints={"layers.*.mlp": ["data", "?", None]}',
            "MODULE=AXIS,-,?;...",
        ),
        parse=parse_constraints,
    )
    shares: Shares | None = option(
        None,
        "Unequal shares of a mesh axis that shards the batch: a weight for each place along it, "
        "such as 3:1 for a device three times as fast; cluster takes them from the peaks of the "
        "cluster's devices. Each device runs that many equal parts of the batch, one after the "
        "other.",
        Hint(
            "a mapping of axes to a whole number from 1 for each place",
            'as in shares={"data": [3, 1]}, or {"data": "cluster"}',
            "AXIS=N:N,...",
        ),
        parse=read_shares,
        convert=shares_of,
    )

    on_overflow: Overflow = option(
        "stop",
        "Action when more rows go to experts than expert_capacity has room for: stop, or rerun "
        "the step with room for all rows, with a program that is compiled at the first such step. "
        "All ranks agree by one all-reduce of a number, and the state is updated once.",
    )
    expert_chunks: int = option(
        1,
        "With the preset expert, number of chunks in which rows travel: experts compute one while "
        "the next is on its way. The bytes sent stay the same.",
        at_least=1,
        at_most=MOST_DEVICES,
    )
    expert_group: int | None = option(
        None,
        "With the preset expert, devices of a node: rows travel first within groups of that many "
        "neighbours along the axis, then between groups. A device sends one message to each other "
        "node instead of one to each of its devices.",
        at_least=1,
        at_most=MOST_DEVICES,
    )
    expert_copies: Mapping[str, tuple[int, ...]] | None = option(
        None,
        "With the preset expert, the experts that get the most rows: each step copies their "
        "matrices to all devices of the axis, and their rows stay where they are. Expert numbers "
        "for all layers, or by patterns of names of parameters or of their modules.",
        Hint(
            "a list of experts' numbers, or a mapping of patterns to such lists",
            'as in expert_copies=[3, 17], or {"layers.0.*": [3, 17]}',
            "[PATTERN=]N:N,...",
        ),
        parse=read_copies,
        convert=copies_of,
    )
    search_seconds: float | None = option(
        None,
        "With plan='auto', time limit of the search, which then gives the best plan so far, the "
        "bound on all others, and the gap. Ranks on several hosts search separately: search "
        "beforehand, and give them the saved plan.",
        above=0,
    )

    search_limits: Mapping[str, int] | None = option(
        None,
        "With plan='auto' and no mesh, limits on what is searched: tensor, the most devices over which "
        "anything but the batch is sharded in forward and backward (1: only the batch), and stages, the most "
        "stages of a pipeline (1: none).",
        Hint(
            "a mapping of tensor and stages to whole numbers from 1",
            'as in search_limits={"tensor": 8, "stages": 1}',
            "NAME=N,...",
        ),
        parse=parse_limits,
        convert=limits_of,
    )
    search_trials: int | None = option(
        None,
        "With plan='auto' and no mesh, the number of plans of which the running processes try a few steps, "
        "each with a copy of the model, before the fastest is chosen: the searched plan, and others that "
        "are close to it by the cost model. If not given, 6 for CPU processes of this machine, and none if "
        "a cluster is named.",
        at_least=1,
        at_most=MOST_TRIALS,
        has_flag=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mesh(self.mesh, self.micro_batches)
        if self.shares is not None:
            self._settle_shares(self.shares)
        if not self.reshard_after_forward and self.pipeline_axis():
            raise ReshardOfStages()
        if self.on_overflow == "rerun" and (self.pipeline_axis() or self.per_micro_batch):
            raise RerunOfParts(parts="stages" if self.pipeline_axis() else "micro-batches")
        if self.memory_budget is not None and self.recompute != "none":
            raise BudgetAndRecompute(recompute=self.recompute)
        if self.memory_budget is not None and self.pipeline_axis():
            raise BudgetOfStages(axis=self.pipeline_axis())
        if self.per_micro_batch and self.micro_batches == 1:
            raise OneMicroBatch(count=self.micro_batches)
        if is_searched(self.plan):
            self._check_searched()
        for name in ("search_seconds", "search_limits", "search_trials"):
            if getattr(self, name) is not None and not is_searched(self.plan):
                raise NothingSearched(option=name, missing=f": the plan is {self.plan}")
        if self.cluster is not None and not is_local(self.cluster):
            Placement.of(find_cluster(self.cluster), self.mesh)

    def _check_searched(self) -> None:
        """Raise NotSearched for options that a search does not support."""
        chosen = {
            "memory_budget": self.memory_budget is not None,
            "shares of an axis that is not the outermost": bool({*(self.shares or ())} - {*[*self.mesh][:1]}),
            # two axes would shard the batch
            "shares on so many axes": self.shares is not None and len(self.mesh) > SEARCHED_AXES + 1,
            "expert_capacity": self.expert_capacity is not None,
            "expert_chunks": self.expert_chunks > 1,
            "expert_group": self.expert_group is not None,
            "expert_copies": self.expert_copies is not None,
        }
        for option_name in (name for name, is_given in chosen.items() if is_given):
            raise NotSearched(option=option_name)

    def _settle_shares(self, shares: Shares) -> None:
        """Store shares in lowest terms, without axes whose shares are equal.

        Raises BadShares, SharesUnsupported.
        """
        given = self.cluster
        cluster = None if given is None or is_local(given) else find_cluster(given)
        found = settled(shares, self.mesh, cluster)
        object.__setattr__(self, "shares", found or None)
        axis, *others = [*found] or [""]
        if others:
            instead = "give shares to one axis, or one axis to the batch"
            raise SharesUnsupported(axis=axis, other=f"those of {', '.join(others)}", instead=instead)
        if axis and self.per_micro_batch:
            raise SharesUnsupported(axis=axis, other="per_micro_batch=True", instead="leave one of them out")
        if axis and (stages := self.pipeline_axis()):
            instead = "give the stages' ranks speeds=, which share out layers, and leave shares out"
            raise SharesUnsupported(axis=axis, other=f"a pipeline along {stages!r}", instead=instead)

    @property
    def experts(self) -> Experts:
        """Return the options of experts."""
        given = self.expert_capacity, self.on_overflow, self.expert_chunks, self.expert_group
        return Experts(*given, tuple((self.expert_copies or {}).items()))

    @property
    def planned_cluster(self) -> ClusterLike | None:
        """Return the cluster that was given, or that of a saved plan. Raises BadPlanFile."""
        if self.cluster is not None or self.plan_path is None:
            return self.cluster
        return str(load_plan_file(self.plan_path).get("cluster", "")) or None

    @property
    def plan_path(self) -> Path | None:
        """Return the file of a saved plan, if ``plan`` names one."""
        return named_file(self.plan, ".json")

    def pipeline_axis(self) -> str:
        """Return the axis of the plan's pipeline; empty if it has none.

        Raises BadPlanFile, UnknownPreset, UnknownAxis, AxisOfTwoPresets, AutoInProduct.
        """
        if self.plan_path is not None:
            return str(load_plan_file(self.plan_path).get("pipeline", ""))
        text = product_of(self.plan) if isinstance(self.plan, Mapping) else self.plan
        if not isinstance(text, str):
            return ""
        return next((axis for name, axis in plan_terms(text, self.mesh) if name == "pipeline"), "")


def check_mesh(mesh: Mapping[str, int], micro_batches: int = 1) -> None:
    """Raise BadMeshSpec for a mesh that is empty or too large, or for an invalid axis."""
    problem = "" if mesh else "it has no axes"
    for name, size in mesh.items():
        if not isinstance(name, str) or not name.isidentifier():
            problem = f"axis name {name!r} is not an identifier"
        elif not isinstance(size, int) or isinstance(size, bool) or size < 1:
            problem = f"axis {name!r} has size {size!r}; a whole number from 1 is needed"
    if not problem and prod(mesh.values()) > MOST_DEVICES:
        problem = f"it has more devices than there can be ranks, {MOST_DEVICES}"
    if not problem and micro_batches != 1 and MICRO in mesh:
        problem = f"axis {MICRO!r} is reserved for micro-batches: use another name"
    if problem:
        raise BadMeshSpec(mesh=dict(mesh), problem=problem)


def _problem(name: str, equals: str, size: str, mesh: Mapping[str, int]) -> str | None:
    if not name and not equals:
        return "an axis is missing"
    if not equals:
        return f"the axis {name!r} has no size"
    if not name.isidentifier():
        return f"{name!r} is not a valid name of an axis: use letters, digits and _"
    if name in mesh:
        return f"the axis {name!r} is given twice"
    if not (size.isascii() and size.isdecimal()) or not size.strip("0"):
        return f"the size of axis {name!r} must be a whole number of at least 1, not {size!r}"
    if len(size) > len(str(MOST_DEVICES)):
        return f"the size of axis {name!r} is more than there can be ranks, {MOST_DEVICES}"
    return None
