"""Flags of earlier versions, refused with the ones that took their place."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.diagnostics.options import OldSpelling
from shardc.options.field import flag
from shardc.options.given import OLD_NAMES

SCHEDULE = {"--microbatches": "--micro-batches", "--memory": "--memory-limit"}
OPTIONS = {flag(old): flag(new) for old, new in OLD_NAMES.items()}


def refuse_old_flags(arguments: Sequence[str]) -> None:
    """Raises OldSpelling. The passes of ``shardc opt`` are flags, too, and none of these."""
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    old = {"schedule": SCHEDULE, "opt": {}}.get(command, OPTIONS)
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in old:
            raise OldSpelling(old=name, new=old[name], where=f"shardc {command}")
