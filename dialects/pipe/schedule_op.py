"""``pipe.schedule``: the order of actions that a module's rank programs follow. Level 3."""

from torch_mlir import ir

from shardc.diagnostics.passes.pipeline import BadAction, BadEviction
from shardc.dialects.dist.build import attributes
from shardc.dialects.dist.verifier import Illegal, Op, Site
from shardc.dialects.pipe.action import OPTIMIZER, Action
from shardc.dialects.pipe.dialect import Pipe
from shardc.dialects.pipe.eviction import Eviction
from shardc.dialects.pipe.schedule import Schedule, Updates
from shardc.dialects.pipe.weight_versions import forward_weights


class ScheduleOp(Op, dialect=Pipe, name="schedule"):
    """A schedule: the actions of each rank along the mesh axis ``axis``, in order, and the routes of
    micro-batches.

    ``updates = {every = 4 : i64, delay = 1 : i64}`` makes the schedule asynchronous, which changes the
    mathematics. Each stage runs its optimizer after the gradients of ``every`` micro-batches. Forward reads
    weights that are ``delay`` updates old, or without ``delay`` the newest of the stage
    (:class:`~shardc.dialects.pipe.schedule.Updates`).

    ``reads = [[], [], [0, 1]]`` makes the stages a graph: the forward of stage 2 reads stages 0 and 1, which
    read nothing. Without it each stage reads the one before it in its route.

    ``evictions = ["0EVICT1 to 3, 0 until 2"]``: rank 3 keeps the activations of micro-batch 1 in stage 0,
    between 0 and 2 of its own actions (:class:`~shardc.dialects.pipe.eviction.Eviction`).

    ``"pipe.schedule"() {axis = "pipe", orders = [["0F0", "0B0"], ["1F0", "1B0"]], routes = [[0, 1]], slices =
    1 : i64, sym_name = "1f1b"} : () -> ()``

    With several slices of sequences, ``lengths`` has the number of tokens of each.
    """

    sym_name: ir.StringAttr
    axis: ir.StringAttr
    orders: ir.ArrayAttr
    routes: ir.ArrayAttr
    slices: ir.IntegerAttr

    def check(self, site: Site) -> None:
        site.integer("slices", 1)
        ranks, name = len(site.attribute("orders", ir.ArrayAttr)), site.attribute("axis", ir.StringAttr)
        axis = site.axis(name)
        if site.mesh.is_time(axis) or axis.size != ranks:
            raise Illegal(f"has the orders of {ranks} ranks; {name} must be a space axis of that size")
        given = enumerate(site.attribute("routes", ir.ArrayAttr))
        routes = [_row("routes", number, row) for number, row in given]
        stages = set[int]()
        for number, row in enumerate(routes):
            found = [stage.value for stage in row if isinstance(stage, ir.IntegerAttr) and stage.value >= 0]
            if not row or len(found) != len(row):
                shown = ir.ArrayAttr.get(row, site.op.context)
                raise Illegal(f"route {number} must be a list of stages, not {shown}")
            stages.update(found)
        if not routes:
            raise Illegal("needs a route: the stages that micro-batches go through")
        if site.has("reads"):
            _check_reads(site, routes)
        seen = set[Action]()
        for rank, order in enumerate(site.attribute("orders", ir.ArrayAttr)):
            for text in _row("orders", rank, order):
                action = _action(text)
                runs = f"rank {rank} runs {action}, but"
                if action.kind == OPTIMIZER:
                    raise Illegal(f"{runs} updates, not the orders, determine where optimizers run")
                if action.stage not in stages:
                    raise Illegal(f"{runs} no route goes through stage {action.stage}")
                if action in seen:
                    raise Illegal(f"runs {action} twice")
                seen.add(action)
        if site.has("lengths"):
            lengths, slices = site.attribute("lengths", ir.ArrayAttr), site.integer("slices", 1)
            tokens = [length.value for length in lengths if isinstance(length, ir.IntegerAttr)]
            if len(tokens) != len(lengths) or len(tokens) != slices or min(tokens) < 1:
                raise Illegal(
                    f"lengths must be the tokens of {slices} slices, at least 1 each, not {lengths}"
                )
        if site.has("evictions"):
            _check_evictions(site, ranks, stages)
        if site.has("updates"):
            _check_updates(site)


def _check_reads(site: Site, routes: list[list[ir.Attribute]]) -> None:
    given = enumerate(site.attribute("reads", ir.ArrayAttr))
    reads = [[_stage(stage) for stage in _row("reads", number, row)] for number, row in given]
    if site.has("updates") or site.attribute("slices", ir.IntegerAttr).value > 1:
        raise Illegal("has reads beside slices or updates, whose stages are a chain")
    if [[_stage(stage) for stage in route] for route in routes] != [list(range(len(reads)))]:
        raise Illegal(
            f"has reads of {len(reads)} stages; its one route must go through 0 to {len(reads) - 1}"
        )
    for stage, row in enumerate(reads):
        if row != sorted({other for other in row if 0 <= other < stage}):
            raise Illegal(f"reads[{stage}] must be stages before {stage}, in order, not {row}")


def _stage(stage: ir.Attribute) -> int:
    return stage.value if isinstance(stage, ir.IntegerAttr) else -1


def _check_evictions(site: Site, ranks: int, stages: set[int]) -> None:
    for text in site.attribute("evictions", ir.ArrayAttr):
        try:
            eviction = Eviction.parse(text.value if isinstance(text, ir.StringAttr) else str(text))
        except BadEviction:
            raise Illegal(f'an eviction is written as in "0EVICT1 to 3, 0 until 2", not {text}') from None
        if eviction.rank >= ranks:
            raise Illegal(f"{eviction}: there are {ranks} ranks")
        if eviction.stage not in stages:
            raise Illegal(f"{eviction}: no route goes through stage {eviction.stage}")


def _check_updates(site: Site) -> None:
    updates = site.attribute("updates", ir.DictAttr)
    least = {"every": 1, "delay": 0}
    for entry in updates:
        name, value = entry.name, entry.attr
        if name not in least or not isinstance(value, ir.IntegerAttr) or value.value < least[name]:
            wanted = "every, at least 1, and may have delay, at least 0"
            raise Illegal(f"updates must have {wanted}, not {name} = {value}")
    if "every" not in updates:
        raise Illegal("updates must have every, the number of micro-batches per update")
    for use in forward_weights(read_schedule(site.op)):
        if use.version > use.made:
            made = f"but only {use.made} exist by then"
            raise Illegal(f"{use.action} needs version {use.version} of its weights, {made}")


def _row(name: str, number: int, row: ir.Attribute) -> list[ir.Attribute]:
    if not isinstance(row, ir.ArrayAttr):
        raise Illegal(f"{name}[{number}] must be a list, not {row}")
    return list(row)


def _action(text: ir.Attribute) -> Action:
    try:
        return Action.parse(text.value if isinstance(text, ir.StringAttr) else str(text))
    except BadAction:
        form = 'a stage, a kind (F, B, I, W) and a micro-batch, such as "2F0"'
        raise Illegal(f"an action is {form}, not {text}") from None


def write_schedule(module: ir.Module, schedule: Schedule, axis: str, ip: ir.InsertionPoint) -> None:
    """Insert ``schedule``, for the ranks along ``axis``, at ``ip`` in the module."""
    said = {
        "sym_name": schedule.name,
        "axis": axis,
        "orders": [map(str, order) for order in schedule.orders],
        "routes": schedule.routes,
        "slices": schedule.slices,
        "updates": None if schedule.updates is None else schedule.updates._asdict(),
        "lengths": schedule.lengths or None,
        "reads": schedule.reads or None,
        "evictions": [*map(str, schedule.evictions)] or None,
    }
    given, loc = attributes(module.context, **said), ir.Location.unknown(module.context)
    ir.Operation.create(ScheduleOp.OPERATION_NAME, [], [], given, loc=loc, ip=ip)


def find_schedule(module: ir.Module) -> ir.Operation | None:
    """Return the ``pipe.schedule`` of a module, or None."""
    ops = (op.operation for op in module.body.operations)
    return next((op for op in ops if op.name == ScheduleOp.OPERATION_NAME), None)


def read_schedule(op: ir.Operation) -> Schedule:
    """Read a ``pipe.schedule``."""
    a = op.attributes
    orders = tuple(tuple(Action.parse(text.value) for text in order) for order in a["orders"])
    routes = tuple(tuple(stage.value for stage in route) for route in a["routes"])
    given = {entry.name: entry.attr.value for entry in a["updates"]} if "updates" in a else None
    updates = Updates(**given) if given else None
    lengths = tuple(length.value for length in a["lengths"]) if "lengths" in a else ()
    reads = tuple(tuple(stage.value for stage in row) for row in a["reads"]) if "reads" in a else ()
    evictions = tuple(Eviction.parse(text.value) for text in a["evictions"]) if "evictions" in a else ()
    facts = updates, lengths, reads, evictions
    return Schedule(a["sym_name"].value, orders, routes, a["slices"].value, *facts)
