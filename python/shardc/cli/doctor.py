"""``shardc doctor``: what this machine has, and what works."""

from __future__ import annotations

import typer

PART_FAILED = 1


def doctor() -> None:
    """Show what this machine has and what works: packages, instruction sets, linker, GPUs, caches.

    Compiles and writes nothing. Exits with 1 if a part does not work; its line says so.

    \b
    Example:
      shardc doctor
    """
    from shardc.commands.doctor import findings, render

    found = findings()
    print(render(found))
    if not all(finding.works for finding in found):
        raise typer.Exit(PART_FAILED)
