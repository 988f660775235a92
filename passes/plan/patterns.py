"""Plans that a user writes: a mapping from name patterns to shardings."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from shardc.diagnostics.passes.plan import BadShardingEntry, PatternMatchesNothing, TooManyDims
from shardc.dialects.dist.layout_text import WHOLE, axes_of
from shardc.dialects.dist.mesh import Mesh
from shardc.passes.plan.plan import Argument, DimNames, Plan
from shardc.passes.plan.plan_check import dims_problem
from shardc.passes.plan.presets import Setting, close_inputs

PLANNED_ROLES = frozenset(("param", "input", "opt_state", "buffer"))


def read_patterns(patterns: Mapping[str, object], arguments: Sequence[Argument], mesh: Mesh) -> Plan:
    """The plan of ``{"*.q_proj.weight": ["tensor", None], "input_ids": ["data"], "*.norm.weight": "whole"}``.

    Patterns are shell-style (``*``, ``?``, ``[...]``) and match parameters, inputs and buffers by name, and
    optimizer state (``w/exp_avg``) if they have a slash. Optimizer state that no pattern matches has its
    parameter's sharding. A matching argument is closed: propagation adds nothing to it. The first matching
    pattern applies. Time axes split the batch dim of every input, even if the mapping does not name them.
    """
    plan = Plan("mapping")
    for pattern, entries in patterns.items():
        roles = PLANNED_ROLES if "/" in pattern else PLANNED_ROLES - {"opt_state"}
        planned = [a for a in arguments if a.role in roles]
        matches = [a for a in planned if fnmatchcase(a.name, pattern)]
        if not matches:
            names = [a.name for a in planned]
            nearest = difflib.get_close_matches(pattern, names, n=3, cutoff=0.2) or names[:3]
            raise PatternMatchesNothing(pattern=pattern, nearest=", ".join(nearest))
        for argument in matches:
            if argument.key not in plan.entries:
                dims = read_dims(argument, entries, mesh)
                plan.say(argument.key, dims, closed=True, why=f"pattern {pattern}")
    close_inputs(plan, Setting(arguments, mesh, {}))
    return plan


def read_dims(argument: Argument, entries: object, mesh: Mesh) -> DimNames:
    """Read a user's sharding, and check it against the argument's shape and the mesh."""
    if entries == WHOLE:
        entries = ()
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise BadShardingEntry(name=argument.name, entry=entries)
    if len(entries) > len(argument.shape):
        raise TooManyDims(name=argument.name, given=len(entries), shape=list(argument.shape))
    given = tuple(tuple(axes_of(argument.name, entry)) for entry in entries)
    dims = given + ((),) * (len(argument.shape) - len(given))
    if problem := dims_problem(argument, dims, mesh, entries):
        raise problem
    return dims
