"""``shardc compile``: from a script with a model to a folder with a program for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardc.cli.mesh import parse_mesh
from shardc.cli.progress import status


def compile_(
    script: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, help="Python file with build(): model, optimizer and batch."
        ),
    ],
    mesh: Annotated[
        str, typer.Option("--mesh", "-m", metavar="AXIS=SIZE,...", help="Axes of the mesh and their sizes.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write. Replaced only if shardc wrote it.")
    ],
    plan: Annotated[
        str,
        typer.Option(
            help="What is sharded: a preset (data, zero1, zero2, zero3, tensor, sequence, pipeline), a product of presets "
            "over different axes (data*tensor), or a saved plan.json."
        ),
    ] = "data",
    micro_batches: Annotated[
        int, typer.Option(min=1, help="Cut each rank's batch into this many parts and accumulate gradients.")
    ] = 1,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="With a plan such as pipeline*data: a schedule's name (shardc schedule lists them), or a CSV file."
        ),
    ] = None,
    stages: Annotated[
        str | None,
        typer.Option(
            metavar="N|MODULE,...", help="How many stages, or the modules at which all but the first start."
        ),
    ] = None,
    stale_weights: Annotated[
        bool,
        typer.Option(
            "--stale-weights", help="Allow a schedule that changes the mathematics: pipedream, pipedream-2bw."
        ),
    ] = False,
    recompute: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT,...",
            help="What stages compute again in backward: none, full or selective, for all or for each.",
        ),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            min=1.0, metavar="BYTES", help="What a device may hold of state and activations; cuts stages so."
        ),
    ] = None,
    gather: Annotated[
        str | None,
        typer.Option(
            metavar="FOR",
            help="What a pipeline gathers parameters for that are cut: each micro-batch, or once a step.",
        ),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(min=0.0, help="Clip the gradients to this global norm.")
    ] = None,
    fuse: Annotated[bool, typer.Option(help="Compile groups of ops to kernels.")] = True,
    numerics: Annotated[
        str,
        typer.Option(
            help="Where kernels round 16-bit floats: at their results (fused), or after each op (eager)."
        ),
    ] = "fused",
    target: Annotated[
        str | None,
        typer.Option(
            help="What kernels are for: cpu, or a GPU (sm_80, sm_90, sm_100, gfx942), which need not be here. Unless said "
            "otherwise the GPU of this machine, and its CPU where torch sees none."
        ),
    ] = None,
    matmuls: Annotated[
        str,
        typer.Option(
            help="Matmuls and attention as calls (extern), in kernels (generated), or what is faster (auto)."
        ),
    ] = "auto",
    forbid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A+B", help="Two ops that must not share a kernel, as explain --fusion names them."
        ),
    ] = None,
    force: Annotated[
        list[str] | None, typer.Option(metavar="A+B", help="Two ops that must share one.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove the result equal to one device before writing it.")
    ] = False,
) -> None:
    """Compile a whole training step for a mesh and write a folder with a program for each rank.

    The script defines build(), which returns (model, optimizer, example_batch) and, if the model's output
    has no .loss, a function loss(output, batch). Needs no GPU and no second process. The folder runs with
    torch alone.

    \b
    Examples:
      shardc compile examples/llama.py --mesh data=2,tensor=2 --plan 'data*tensor' -o out/
      shardc compile examples/llama.py --mesh data=4 --plan zero3 --micro-batches 4 --clip 1.0 -o out/
      shardc compile examples/llama.py --mesh pipe=2,data=2 --plan 'pipeline*data' --micro-batches 4 --schedule zb-h1 -o
      out/
    """
    axes = parse_mesh(mesh)
    options = {
        "clip": clip, "fuse": fuse, "numerics": numerics, "target": target, "matmuls": matmuls, "verify": verify,
        "schedule": schedule, "stages": _stages(stages), "stale_weights": stale_weights, "recompute": _recompute(recompute),
        "cap_bytes": memory, "gather": gather, "forbid": forbid or (), "force": force or (),
    }  # fmt: skip
    with status(f"compiling {script.name}"):
        from shardc.driver.compile import compile_script

        report = compile_script(script, out, axes, micro_batches, plan, options)
    print(report.render())


def _recompute(text: str | None) -> str | list[str] | None:
    return text.split(",") if text is not None and "," in text else text


def _stages(text: str | None) -> int | list[str] | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    return [name.strip() for name in text.split(",")]
