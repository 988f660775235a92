"""``shardc schedule``: simulates a pipeline schedule, and draws it."""

from typing import Annotated

from typer import Argument, Option

from shardc.cli.flag_texts import parse_options, parse_reads, parse_times
from shardc.cli.options import Count, File, Texts
from shardc.options.schedules import check_named
from shardc.text_files import check_writable


def schedule(
    name: Annotated[
        str | None,
        Argument(metavar="NAME|CSV", help="Name of a schedule, or CSV file of one; all names if not given."),
    ] = None,
    stages: Annotated[int, Option(help="Stages that the model is cut into.")] = 4,
    micro_batches: Annotated[int, Option("--micro-batches", "-m", help="Micro-batches of a step.")] = 8,
    ranks: Annotated[Count, Option(help="Ranks; the most that the schedule can use if not given.")] = None,
    times: Annotated[
        Texts,
        Option(
            metavar="F,I,W[,SEND]",
            help="Seconds of a stage's forward, input and weight gradient, and of sending; once, or once a "
            "stage.",
        ),
    ] = None,
    times_of: Annotated[
        File,
        Option(exists=True, dir_okay=False, help="Take F, I and W of each stage from the trace of a run."),
    ] = None,
    overlap: Annotated[bool, Option(help="Ranks compute while they send.")] = True,
    ranks_per_node: Annotated[
        Count, Option(min=1, help="Ranks that share the link which leaves their node.")
    ] = None,
    memory_limit: Annotated[
        float | None,
        Option(
            metavar="ACTIVATIONS",
            help="Activations that a rank may hold, in units of one micro-batch on one stage.",
        ),
    ] = None,
    options: Annotated[
        Texts, Option("--option", metavar="NAME=NUMBER", help="Option of the schedule, such as slices=2.")
    ] = None,
    reads: Annotated[
        Texts,
        Option(
            metavar="STAGE=STAGES",
            help="Stages that a stage reads, such as 4=1,3, or 2= for none; once a stage. Others read the "
            "one before them.",
        ),
    ] = None,
    width: Annotated[int, Option(min=10, max=10_000, help="Columns of the timeline.")] = 100,
    csv: Annotated[
        File, Option(help="Write the actions, as torch.distributed.pipelining reads them.")
    ] = None,
    csv_transfers: Annotated[
        File, Option(help="Write the actions with sends and receives (compute_comms).")
    ] = None,
    svg: Annotated[File, Option(help="Write a picture.")] = None,
    html: Annotated[File, Option(help="Write a page with the picture and what is printed here.")] = None,
    trace: Annotated[File, Option(help="Write a trace for Perfetto or chrome://tracing.")] = None,
    measured: Annotated[
        File, Option(exists=True, dir_okay=False, help="Trace of a measured run, to draw beside it.")
    ] = None,
) -> None:
    """Prove that a pipeline schedule runs, and show its bubble, memory and timeline.

    \b
    Examples:
      shardc schedule
      shardc schedule 1f1b --stages 4 --micro-batches 8
      shardc schedule v-half --ranks 4 --stages 8 -m 16 --times 1,1,1,0.1 --svg v-half.svg
      shardc schedule 1f1b --stages 5 --reads 2= --reads 4=1,3
      shardc schedule auto --stages 4 -m 8 --times-of run.json
      shardc schedule mine.csv --stages 4 -m 8 --html mine.html --measured run.json
    """
    if name is not None:
        check_named(name, stages, micro_batches, ranks)
    check_writable(csv, csv_transfers, svg, html, trace)
    from shardc.commands.schedule import play_schedule, schedule_list
    from shardc.report.played_schedule import write_files
    from shardc.report.timeline_text import LEGEND, timeline_text
    from shardc.report.timeline_trace import read_run

    if name is None:
        print(schedule_list())
        return
    run = None if times_of is None else read_run(times_of)
    played = play_schedule(
        name,
        stages,
        micro_batches,
        ranks=ranks,
        times_s=[parse_times(text) for text in times or ["1,1,1,0"]],
        measured=run,
        memory_limit_bytes=memory_limit,
        options=parse_options(options or []),
        overlap=overlap,
        ranks_per_node=ranks_per_node,
        reads=parse_reads(reads, stages) if reads else (),
    )
    text = "\n".join([played.summary(), "", timeline_text(played.timeline, width), LEGEND])
    print(text)
    write_files(
        played, text, csv=csv, csv_transfers=csv_transfers, svg=svg, html=html, trace=trace, measured=measured
    )
