"""``shardc explain``: says how a program is sharded, and why."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from shardc.cli.options import Libraries, read_kernels, with_options
from shardc.options.kernels import Kernels


@with_options(Kernels, only=("forbid_fusion", "force_fusion"))
def explain(
    path: Annotated[
        Path,
        Argument(
            exists=True,
            metavar="FOLDER|MLIR|SCRIPT",
            help="Folder that shardc compile wrote, or MLIR file; with --fusion also a script.",
        ),
    ],
    what: Annotated[
        str | None, Argument(help="Part of the name of a parameter or argument; all if not given.")
    ] = None,
    fusion: Annotated[
        bool, Option("--fusion", help="Instead say which ops share a kernel, which do not, and why.")
    ] = False,
    libraries: Libraries = None,
    *,
    given: Mapping[str, object],
) -> None:
    """Explain where each sharding came from, which collectives run where, and how many bytes they move.

    \b
    Examples:
      shardc explain out/
      shardc explain out/ layers.0.self_attn.q_proj
      shardc explain out/ --fusion
      shardc explain train.py --fusion --forbid-fusion aten.add.Tensor+gelu@model.py:12
    """
    kernels = read_kernels(given)
    if fusion:
        if what is not None:
            raise typer.BadParameter("a name and --fusion do not go together")
        from shardc.commands.explain_fusion import explain_path

        print(explain_path(path, kernels.forbid_fusion, kernels.force_fusion, libraries or ()))
        return
    if kernels.has_edges:
        raise typer.BadParameter("--forbid-fusion and --force-fusion need --fusion")
    from shardc.commands.explain import explain as explain_

    print(explain_(path, what, libraries or ()))
