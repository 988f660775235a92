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
    "CutsLeft": "A saved plan has choices for other calls: only its layouts of arguments decide.",
    "Interleaved": "A weight holds several parts, such as fused q, k and v, and each part is sharded.",
    "NotCut": "A tensor stays whole that a preset would have sharded.",
    "KeysGathered": "Under `ring` some attention calls gather keys and values, as those with a mask.",
    "NotCopied": "No expert is copied: no axis shards both the batch and the experts.",
    "NotDispatched": "Rows are not sent to experts, because rows or experts do not divide evenly.",
    "NotFolded": "Under `context` with a causal mask, devices have unequal work: the sequence is not folded.",
    "NotGrouped": "Rows travel to experts in one exchange: no axis shards both the batch and the experts.",
    "Padded": "Dims that do not divide evenly over the mesh are padded.",
    "PatternUnused": "A pattern of the plan that the model ships with matches none of its modules.",
    "Recomputed": "Backward recomputes ops of the forward to keep a memory budget.",
    "ReplicatedOp": "An op has no sharding rule: every device computes all of it.",
    "Searched": "The plan was searched: its estimated time, and the bound on the time of any other plan.",
    "StagesOfModel": "The stages of a pipeline are those that the model ships with.",
    "TuningIgnored": "A tuned configuration does not fit the kernel any more; the default is used.",
    "WorkRepeated": "Devices along an axis repeat each other's work: some ops are not sharded along it.",
}
"""Remarks, which a plan's report has at its end."""

WARNINGS = {
    "ForwardCompiled": "A program in eval mode was compiled, for ``step.evaluate`` or ``step.forward``.",
    "ModeCompiled": "The model was switched to train or eval mode, and a program for that mode was compiled.",
    "ModelTracedAgain": "The model changed, was traced again, and gave the same program.",
    "ResultMismatch": "A call's result has another form than the program expects; no number is wrong.",
    "RoomCompiled": "Experts had too little room for their rows: a program with room for all was compiled.",
    "SchedulerNotSaved": "A checkpoint lacks the state of a scheduler that changes the optimizer.",
    "ShapeCompiled": "A batch had a new shape, and a program for it was compiled.",
    "StepNotCaptured": "A step runs without a CUDA graph.",
    "TuningDatabaseDamaged": "The tuning database was damaged; it was renamed and a new one was created.",
    "TuningDatabaseUnreadable": "The tuning database cannot be read, so kernels are not tuned.",
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
"""Errors that are issued as warnings if the program can continue without the part that failed."""


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
        raise SilencedNothing(name=name, problem="which is not the id of a remark or warning", nearest=near)


def summary(class_: type) -> str:
    """The first paragraph of a class's docstring, in one line."""
    return " ".join((getdoc(class_) or "").partition("\n\n")[0].split())


def _classes(module: object, base: type) -> Iterator[tuple[str, type]]:
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, base) and value is not base:
            yield name, value
