"""``shardc explain``: says how a program is sharded, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    path: Annotated[
        Path,
        typer.Argument(
            exists=True,
            metavar="FOLDER|MLIR|SCRIPT",
            help="Folder that shardc compile wrote, or MLIR file; with --fusion also a script.",
        ),
    ],
    what: Annotated[
        str | None, typer.Argument(help="Part of the name of a parameter or argument; all if not given.")
    ] = None,
    fusion: Annotated[
        bool, typer.Option("--fusion", help="Say which ops share a kernel, which do not, and why, instead.")
    ] = False,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="A+B", help="Under --fusion: two ops that must not share a kernel."),
    ] = None,
    force: Annotated[
        list[str] | None, typer.Option(metavar="A+B", help="Under --fusion: two ops that must share one.")
    ] = None,
) -> None:
    """Say where each sharding came from, which collectives stand where, and how many bytes they move.

    \b
    Examples:
      shardc explain out/
      shardc explain out/ layers.0.self_attn.q_proj
      shardc explain out/ --fusion
      shardc explain train.py --fusion --forbid aten.add.Tensor+gelu@model.py:12
    """
    if fusion:
        from shardc.driver.explain_fusion import explain_path

        if what is not None:
            raise typer.BadParameter("a name and --fusion do not go together")
        print(explain_path(path, forbid or (), force or ()))
        return
    if forbid or force:
        raise typer.BadParameter("--forbid and --force need --fusion")
    from shardc.driver.explain import explain as explain_

    print(explain_(path, what))
