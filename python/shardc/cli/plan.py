"""``shardc plan``: what plans cost on a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from shardc.cli.options import Count, File, Texts, with_options
from shardc.options.numerics import Numerics
from shardc.options.parallelism import Parallelism, check_mesh, parse_mesh
from shardc.options.pipeline import Pipeline
from shardc.runtime.report.progress import work
from shardc.text_files import check_writable

OPTIONS = (
    "schedule",
    "recompute",
    "memory_limit",
    "gather",
    "balance_activations",
    "reduce_dtype",
    "offload",
    "reshard_after_forward",
    "expert_capacity",
    "memory_budget",
    "constraints",
    "shares",
    "on_overflow",
    "expert_chunks",
    "expert_group",
    "expert_copies",
    "search_seconds",
    "search_limits",
)
"""Options of compile_step that affect a plan's price."""


@with_options(Parallelism, Pipeline, Numerics, only=OPTIONS)
def plan(
    source: Annotated[
        Path,
        Argument(
            exists=True,
            dir_okay=False,
            metavar="CONFIG.JSON|SCRIPT",
            help="Config of a transformers language model, or Python file with build().",
        ),
    ],
    cluster: Annotated[
        list[str],
        Option(
            "--cluster",
            "-c",
            help="Name of a cluster (h100-8x64: 64 nodes of 8), or a YAML file; several are compared.",
        ),
    ],
    given: Mapping[str, object],
    mesh: Annotated[
        Texts,
        Option(
            "--mesh",
            "-m",
            metavar="AXIS=SIZE,...",
            help="A mesh. If none is given, meshes of all of the cluster's devices.",
        ),
    ] = None,
    plan: Annotated[
        Texts,
        Option(
            "--plan",
            "-p",
            help="A plan; several are compared. `auto` searches one, `presets` are all products of presets. "
            "If neither a plan nor a mesh is given, `auto`; with a mesh, `presets`.",
        ),
    ] = None,
    micro_batches: Annotated[Count, Option(min=1, help="Parts of each rank's batch.")] = None,
    batch: Annotated[
        Count, Option(min=1, help="Samples of a step. If not given, one for each device.")
    ] = None,
    length: Annotated[
        Count,
        Option(min=1, help="Tokens of a sample. If not given, the config's longest, at most 8192."),
    ] = None,
    precision: Annotated[
        Literal["bf16", "mixed", "f32"] | None,
        Option(help="Weights and optimizer state: bf16, f32 under autocast (mixed), f32.  [default: bf16]"),
    ] = None,
    what_if: Annotated[
        Texts,
        Option(
            "--what-if",
            metavar="NAME=VALUE",
            help="One change, such as links=2x; several are answered one by one.",
        ),
    ] = None,
    largest: Annotated[
        Literal["batch", "length"] | None,
        Option(help="Find the largest batch or length with which the best plan fits."),
    ] = None,
    json: Annotated[File, Option(help="Write the figures as JSON.")] = None,
    html: Annotated[
        File, Option(help="Write one page that shows the best plan; it loads nothing else.")
    ] = None,
    trace: Annotated[
        File,
        Option(
            dir_okay=False,
            help="Write the best plan's predicted step: .pftrace for Perfetto, .json for Chrome.",
        ),
    ] = None,
    chakra: Annotated[
        File,
        Option(
            file_okay=False,
            metavar="FOLDER",
            help="Write the best plan's predicted step as Chakra execution traces, one for each distinct "
            "rank.",
        ),
    ] = None,
    every_layer: Annotated[
        bool, Option("--every-layer", help="Also compile layers that equal others.")
    ] = False,
    every_plan: Annotated[
        bool, Option("--every-plan", help="Also compile plans that cannot be the best.")
    ] = False,
    front: Annotated[
        bool,
        Option(
            "--front", help="With --plan auto: also find the fastest plans for smaller and smaller memory."
        ),
    ] = False,
    sensitivity: Annotated[
        bool,
        Option(
            "--sensitivity",
            help="With --plan auto: search again with half and twice the links, the memory and the batch.",
        ),
    ] = False,
    elastic: Annotated[
        Count,
        Option(
            "--elastic",
            min=1,
            help="With --plan auto: also plan for up to this many nodes fewer, or devices fewer on a "
            "single node.",
        ),
    ] = None,
) -> None:
    """Estimate what plans cost on a cluster: memory, time, and what limits them. Nothing runs.

    \b
    Examples:
      shardc plan config.json --cluster h100-8x8 --mesh data=8,tensor=8 --plan 'zero3*tensor'
      shardc plan config.json --cluster h100-8 --batch 64
      shardc plan config.json --cluster h100-8x8 --plan auto --front
      shardc plan train.py --cluster a100-80-8x2 --mesh data=16 --what-if links=2x --what-if memory=40GB
      shardc plan config.json --cluster h100-8x4 --plan auto --elastic 2
    """
    check_writable(json, html, trace)
    meshes = [parse_mesh(text) for text in mesh or ()]
    for axes in meshes:
        check_mesh(axes)
    with work(f"planning {source.name}"):
        from shardc.commands.plan import plan as plan_
        from shardc.commands.plans.request import PlanRequest

        request = PlanRequest(
            source,
            cluster,
            meshes,
            plan or (),
            micro_batches,
            batch,
            length,
            precision,
            what_if or (),
            largest,
            given,
            json,
            html,
            trace,
            chakra,
            every_layer,
            every_plan,
            front,
            sensitivity,
            elastic or 0,
        )
        text = plan_(request)
    print(text)
