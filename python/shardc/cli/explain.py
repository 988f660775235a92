"""``shardc explain``: says how a program is sharded, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    path: Annotated[
        Path,
        typer.Argument(
            exists=True, metavar="FOLDER|MLIR", help="Folder that shardc compile wrote, or MLIR file."
        ),
    ],
    what: Annotated[
        str | None, typer.Argument(help="Part of the name of a parameter or argument; all if not given.")
    ] = None,
) -> None:
    """Say where each sharding came from, which collectives stand where, and how many bytes they move.

    \b
    Examples:
      shardc explain out/
      shardc explain out/ layers.0.self_attn.q_proj
    """
    from shardc.driver.explain import explain as explain_

    print(explain_(path, what))
