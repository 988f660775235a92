"""Every id of a message, with what it says: remarks, warnings, errors. ``docs/reference/messages.md`` is
written from it.

An id is the name of an error's class, or of a line here. It never changes, stands in brackets before the text
of a remark or warning, and silences it in ``SHARDC_SILENCE``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc

from shardc import diagnostics
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.options import SilencedNothing
from shardc.diagnostics.text import did_you_mean
from shardc.environment import SILENCE
from shardc.runtime import errors
from shardc.runtime.errors import RuntimeFailure

REMARKS = {
    "CutsLeft": "A saved plan says how other calls are cut than the step has: layouts decide instead.",
    "Interleaved": "A weight holds several parts, such as fused q, k and v, each of which is cut.",
    "NotCut": "A tensor stays whole where a preset would have cut it.",
    "KeysGathered": "Under `ring` some calls of attention gather keys and values: they have masks, say.",
    "NotCopied": "No expert is copied: no axis cuts the batch and the experts alike.",
    "NotDispatched": "Rows of experts stay where they are, as blocks of the batch do not divide them.",
    "NotFolded": "Under `context` and a causal mask devices have unequal work: the sequence is not folded.",
    "NotGrouped": "Rows travel to experts in one exchange: no one axis cuts the batch and the experts alike.",
    "Padded": "Dims that do not divide by the mesh are computed with padding.",
    "PatternUnused": "A pattern of the plan that the model ships with names none of its modules.",
    "Recomputed": "What backward computes again of the forward for a memory budget.",
    "ReplicatedOp": "An op has no sharding rule: every device computes all of it.",
    "Searched": "The plan was searched: what it costs, and the bound on what any other choice does.",
    "StagesOfModel": "The stages of a pipeline are those that the model ships with.",
    "TuningIgnored": "A tuned configuration does not fit the kernel any more; the default is used.",
    "WorkRepeated": "Devices along an axis repeat each other's work: some operations are not cut along it.",
}
"""What a plan's report says besides its tables."""

WARNINGS = {
    "ForwardCompiled": "A program in eval mode was compiled, for ``step.evaluate`` or ``step.forward``.",
    "ModeCompiled": "The model went to another mode, train or eval, and a program for it was compiled.",
    "ModelTracedAgain": "The model changed in a way that left its program as it was.",
    "ResultMismatch": "A call's result differs from what was compiled for, and makes no number wrong.",
    "RoomCompiled": "Rows had too little room at their experts: a program with room for all was compiled.",
    "SchedulerNotSaved": "A checkpoint lacks the state of a scheduler that works on the optimizer.",
    "ShapeCompiled": "A batch of another shape came, and a program for it was compiled.",
    "StepNotCaptured": "A step runs without a CUDA graph.",
    "TuningDatabaseDamaged": "The tuning database was damaged; it was moved aside and a new one begun.",
    "TuningDatabaseUnreadable": "The tuning database cannot be read: kernels are not tuned.",
}
"""Warnings with a line of their own."""

WARNED_ERRORS = (
    "DriverTooOld",
    "GraphFailed",
    "GraphNotCompiled",
    "GraphNotTraced",
    "KernelCacheNotTrusted",
    "KernelCacheNotWritable",
    "KernelNotCompiled",
    "NoCudaGraph",
    "NoLinker",
    "NoSuchFusionEdge",
    "OtherDevice",
    "TritonMissing",
    "TritonTooOld",
    "TuningDatabaseNewer",
    "TuningDatabaseNotWritable",
    "UnknownTarget",
    "UnsupportedTarget",
)
"""Errors that are a warning where the program runs on without what failed."""


def errors_by_id() -> dict[str, type[ShardcError] | type[RuntimeFailure]]:
    """Every class of error by its name; where the compiler and the runtime share one, the compiler's."""
    found: dict[str, type[ShardcError] | type[RuntimeFailure]] = dict(_classes(errors, RuntimeFailure))
    for module in pkgutil.walk_packages(diagnostics.__path__, f"{diagnostics.__name__}."):
        found |= _classes(import_module(module.name), ShardcError)
    return found


def silenceable() -> dict[str, str]:
    """Every id that ``SHARDC_SILENCE`` may name, with what it says."""
    classes = errors_by_id()
    return {**REMARKS, **WARNINGS, **{name: summary(classes[name]) for name in WARNED_ERRORS}}


def check_silenced() -> None:
    """Raises SilencedNothing where ``SHARDC_SILENCE`` names no remark or warning."""
    for name in sorted(SILENCE.get()):
        if name in REMARKS or name in WARNINGS or name in WARNED_ERRORS:
            continue
        if name in errors_by_id():
            raise SilencedNothing(name=name, problem="an error, which cannot be silenced", nearest="")
        near = did_you_mean(name, sorted(silenceable()))
        raise SilencedNothing(name=name, problem="the id of no remark or warning", nearest=near)


def summary(class_: type) -> str:
    """The first paragraph of a class's docstring, in one line."""
    return " ".join((getdoc(class_) or "").partition("\n\n")[0].split())


def _classes(module: object, base: type) -> Iterator[tuple[str, type]]:
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, base) and value is not base:
            yield name, value
