"""Cache of compiled steps: one rank of a machine compiles, and its other ranks and later launches load.

The key contains the captured program itself, with its source lines, and everything else that the compiler
reads. So it is sound whatever the user edits: another trace has another key. An entry stores, as JSON, the
texts of all levels, the program and the names of its kernels.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import torch

from shardc.backends.base import Target
from shardc.cache import disk
from shardc.cache.versions import code_versions
from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.diagnostics.base import Remark, Remarks
from shardc.diagnostics.passes.pipeline import ScheduleWithoutCluster
from shardc.diagnostics.passes.search import SearchWithoutCluster
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.rules.rule import added
from shardc.environment import LOCAL_WORLD_SIZE, STEP_CACHE
from shardc.frontend.step.spec import Capture
from shardc.options.parallelism import PlanLike
from shardc.options.pipeline import Pipeline
from shardc.options.presets import is_searched
from shardc.options.recompute import Recompute
from shardc.options.schedules import AUTO
from shardc.options.step import StepOptions
from shardc.passes.budget.read_graph import Choices
from shardc.passes.manager.program import copy_module
from shardc.passes.pipeline.stages.held import Held
from shardc.passes.plan.plan import Plan
from shardc.passes.plan.plan_file import plan_of_json
from shardc.passes.plan.style_plan import StylePlan
from shardc.passes.search.clock import INTERRUPTED
from shardc.passes.search.dist_search import DistSearch
from shardc.runtime.errors import RuntimeFailure
from shardc.step.arguments import world_size
from shardc.step.fuse_step import fuse_step
from shardc.step.levels import Levels
from shardc.step.micro_batches import MicroBatches
from shardc.step.shard import Compiled, capture_choices, compile_capture
from shardc.step.within_budget import Ladder, Made, planned_peak
from shardc.tuner.database.place import tuning_choices

log = logging.getLogger(__name__)

LOADED = "loaded from the cache"
"""Key of a step's ``seconds`` for the time of loading it."""
_LEVEL = 1
"""zlib's fastest: a tenth of the bytes."""


@dataclass(frozen=True)
class Request:
    """Captured step, with everything that decides how it is compiled.

    ``plan`` and ``pipeline``: those of the options, with plans of other libraries translated. ``model_plan``:
    the plan that the model ships, for tensor parallelism. ``micro_batches``: set if the capture is the first
    of several separate micro-batches. ``held``: for a forward over a pipeline's tensors, what its ranks hold.
    """

    capture: Capture
    mesh: Mesh
    options: StepOptions
    target: Target | None
    plan: PlanLike | StylePlan | Plan
    pipeline: Pipeline | None
    model_plan: Mapping[str, str] | None
    micro_batches: MicroBatches | None = None
    held: Held | None = None

    def compiled(self) -> Compiled:
        """Return the step after all passes: loaded, or compiled while other processes that want it wait.

        Raises what the passes raise.
        """
        if not STEP_CACHE.get() or added:  # a key cannot cover the code of a user's rules
            return self._compile()[0]
        name = f"step-{self.key()}.zlib"
        found = self._load(name)
        if found is not None:
            return found
        with disk.alone(name):
            # Another process may have compiled it in the meantime.
            found = self._load(name)
            if found is None:
                found, is_whole = self._compile()
                # A key cannot cover the code of a user's operators, either.
                if is_whole and not found.description["operators"]:
                    disk.keep(name, _packed(found))
        return found

    def key(self) -> str:
        """Return a hash, 32 hexadecimal digits, of all that the passes, fusion and kernel compilers read."""
        program = self.capture.module.operation.get_asm(assume_verified=True, enable_debug_info=True)
        digest = hashlib.sha256(program.encode())
        digest.update(repr((*self._choices(), *self._machine(), code_versions())).encode())
        return digest.hexdigest()[:32]

    def _choices(self) -> tuple[object, ...]:
        """Return the user's choices. A saved plan counts by its content."""
        options, file = self.options, self.options.parallelism.plan_path
        chosen = list(self.plan.items()) if isinstance(self.plan, Mapping) else self.plan
        content = "" if file is None else file.read_bytes()
        model_plan = list((self.model_plan or {}).items())
        cut = self.micro_batches and (self.micro_batches.count, self.micro_batches.whole)
        step = self.mesh, chosen, content, model_plan, cut, self.pipeline, self.held, self.cluster
        parallelism = options.parallelism
        kept = parallelism.recompute, parallelism.memory_budget, parallelism.reshard_after_forward
        searched = parallelism.experts, parallelism.search_seconds
        return *step, options.kernels, options.numerics, *kept, *searched

    @cached_property
    def cluster(self) -> Cluster | None:
        """Return the cluster that the step is compiled for, or None.

        A searched plan or schedule needs one. Its default is this machine's CPU, measured. On a machine with
        GPUs there is no default: SearchWithoutCluster or ScheduleWithoutCluster is raised.
        """
        given = self.options.parallelism.planned_cluster
        is_plan = is_searched(self.options.parallelism.plan)
        is_schedule = self.pipeline is not None and self.pipeline.schedule == AUTO
        if given is None and (is_plan or is_schedule):
            if torch.cuda.is_available():
                raise SearchWithoutCluster() if is_plan else ScheduleWithoutCluster()
            given = f"local-{self.mesh.world_size}"
        return None if given is None else cluster_of(given)

    def _machine(self) -> tuple[object, ...]:
        """Return the kernels' target, and this machine's measurements and tuning if it is the only host."""
        if self.target is None:
            return ()
        is_measured = (world_size() or 1) <= LOCAL_WORLD_SIZE.get()
        device = self.target.local_device()
        clock = None if device is None else self.target.clock(device).surroundings()
        precision = torch.get_float32_matmul_precision()
        measured = (clock, tuning_choices()) if is_measured else ()
        return self.target.backend, self.target.name, self.target.key(), precision, is_measured, measured

    def _compile(self) -> tuple[Compiled, bool]:
        """Compile the step. Return it, and True if other processes may load it.

        They may unless a kernel failed to compile or the user ended the search for the plan.
        """
        budget = self.options.parallelism.memory_budget
        if budget is None:
            return self._made(self.capture, self.options.parallelism.recompute)
        found = Ladder(self._attempt, self._choices_within).within(budget)
        if found.remark is not None:
            found.step[0].remarks.append(found.remark)
        return found.step

    def _made(self, capture: Capture, recompute: Recompute | frozenset[int]) -> tuple[Compiled, bool]:
        """Compile with the given recomputation; results are those of :meth:`_compile`."""
        options = self.options
        found = compile_capture(
            capture,
            self.mesh,
            self.plan,
            model_plan=self.model_plan,
            pipeline=self.pipeline,
            micro_batches=self.micro_batches,
            cluster=self.cluster,
            held=self.held,
            recompute=recompute,
            reduce_dtype=options.numerics.reduce_dtype,
            reshard_after_forward=options.parallelism.reshard_after_forward,
            experts=options.parallelism.experts,
            search=_search_of(options.parallelism.search_seconds),
        )
        # An interrupted search must not decide the plan of later processes.
        is_whole = found.searched is None or found.searched.why != INTERRUPTED
        if not options.kernels.fuse or self.target is None:
            return found, is_whole
        is_fused = fuse_step(found, options.kernels, options.numerics.rounding, self.target)
        return found, is_fused and is_whole

    def _attempt(self, again: frozenset[int]) -> Made[tuple[Compiled, bool]]:
        made = self._made(self._copy(), again)
        return Made(made, planned_peak(made[0]))

    def _choices_within(self) -> Choices:
        return capture_choices(
            self._copy(),
            self.mesh,
            self.plan,
            model_plan=self.model_plan,
            micro_batches=self.micro_batches,
            reduce_dtype=self.options.numerics.reduce_dtype,
            reshard_after_forward=self.options.parallelism.reshard_after_forward,
            experts=self.options.parallelism.experts,
        )

    def _copy(self) -> Capture:
        """Return the capture with a copy of its module, which the passes may change."""
        return replace(self.capture, module=copy_module(self.capture.module))

    def _load(self, name: str) -> Compiled | None:
        """Load the entry of that name; None if it or its kernels are missing or unusable."""
        started, entry = time.perf_counter(), disk.read(name)
        if entry is None:
            return None
        try:
            held = json.loads(zlib.decompress(entry[1]))
            found = self._unpacked(held)
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            log.debug("the entry %s is of no use: %s", name, error)
            disk.discard(name)
            return None
        if found is not None:
            found.seconds[LOADED] = time.perf_counter() - started
        return found

    def _unpacked(self, held: Mapping[str, Any]) -> Compiled | None:
        """Return an entry's step; None if its kernels are missing. Raises ValueError, KeyError, TypeError."""
        library = None if held["library"] is None else self._library(held["library"])
        if held["library"] is not None and library is None:
            return None
        remarks = Remarks(Remark(*remark) for remark in held["remarks"])
        found = Compiled(
            self.capture,
            self.mesh,
            plan_of_json(held["plan"]),
            held["plan"],
            Levels(held["levels"]),
            remarks,
            {"trace": self.capture.trace_s, "import": self.capture.import_s},
            library,
            None if library is None else self.target,
            held["fusion_effect"],
            self.cluster,
        )
        found.program_text, found.description = held["program"], held["description"]
        return found

    def _library(self, name: str) -> Path | None:
        """Return the path of the kernels of that name; None if they are missing or fail to load."""
        assert self.target is not None
        path = self.target.find(name)
        if path is None:
            return None
        try:
            self.target.load(path)
        except RuntimeFailure as failure:
            log.debug("the kernels %s are of no use: %s", name, failure)
            return None
        return path


def _search_of(limit_s: float | None) -> DistSearch:
    """Return the search for a plan. Ctrl-C ends only a single process's: ranks must find the same plan."""
    return DistSearch(seconds=limit_s or inf, hears=(world_size() or 1) == 1)


def _packed(compiled: Compiled) -> bytes:
    """Serialize a step for a cache entry."""
    held = {
        "levels": dict(compiled.levels),
        "plan": compiled.plan_json,
        "remarks": [[remark.name, remark.message, remark.where] for remark in compiled.remarks],
        "fusion_effect": compiled.fusion_effect,
        "library": None if compiled.library is None else compiled.library.name,
        "program": compiled.program_text,
        "description": compiled.description,
    }
    return zlib.compress(json.dumps(held).encode(), _LEVEL)
