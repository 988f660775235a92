"""``pipe.action``: runs a stage, or a collective of its parameters or gradients. Level 3."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.diagnostics.passes.pipeline import BadAction
from shardc.dialects.dist.build import At, attributes
from shardc.dialects.dist.mesh import beside
from shardc.dialects.dist.regions.yield_op import elements_of, expect_types
from shardc.dialects.dist.tuples import pack, tuple_type, unpack
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Result, Site
from shardc.dialects.pipe.action import Action, Collective, parse_action
from shardc.dialects.pipe.dialect import Pipe
from shardc.dialects.pipe.stage import StageOp, signature, stage_name


class ActionOp(Op, dialect=Pipe, name="action"):
    """Runs the body ``stage`` for the action in ``action``, written as in a schedule.

    If a schedule has several routes, the stage of the action may be a copy of the body's stage. Operand and
    result are tuples of the body's arguments and of the values that it yields; an empty tuple is left out.
    ``version`` is for a schedule with updates: the number of updates behind the weights that the action
    reads.

    ``%1 = "pipe.action"(%0) {action = "0F3", stage = @stage_0_F}
    : (!torch.tuple<vtensor<[4,8],f32>>) -> !torch.tuple<vtensor<[4,8],f32>>``
    """

    action: ir.StringAttr
    stage: ir.FlatSymbolRefAttr
    ins: Operand | None = None
    outs: Result | None = None

    def check(self, site: Site) -> None:
        if site.has("version"):
            site.integer("version", 0)
        action, name = action_of(site), site.attribute("stage", ir.FlatSymbolRefAttr).value
        stage = find_stage(site.op, name)
        if stage is None:
            raise Illegal(f"runs @{name}, but the module has no such pipe.stage")
        kind = stage.attributes["kind"].value
        if kind != action.kind:
            raise Illegal(f"is {action}, but @{name} is of kind {kind}")
        reads, makes = signature(stage)
        expect_types("operand", reads, elements_of(site.op.operands))
        expect_types("result", makes, elements_of(site.op.results))


def action_of(site: Site) -> Action | Collective:
    """Return the action in the op's attribute ``action``. Raises Illegal."""
    text = site.attribute("action", ir.StringAttr).value
    try:
        return parse_action(text)
    except BadAction:
        raise Illegal(
            "action must be a stage, a kind (F, B, I, W, O) and a micro-batch, such as 2F0, or a stage and a "
            f"collective, such as 2REDUCE_GRAD, not {text!r}"
        ) from None


def find_stage(op: ir.Operation, name: str) -> ir.Operation | None:
    """Return the ``pipe.stage`` called ``name`` in the module of ``op``, or None."""
    stages = (found for found in beside(op) if found.name == StageOp.OPERATION_NAME)
    return next((found for found in stages if found.attributes["sym_name"].value == name), None)


def run_action(
    action: Action | Collective,
    stage: tuple[int, str] | tuple[int, str, int],
    values: Sequence[ir.Value],
    results: Sequence[ir.Type],
    version: int | None = None,
    **at: Unpack[At],
) -> list[ir.Value]:
    """Build the action of ``stage`` (index, kind, slice) on ``values``, and return its results.

    ``version`` is that of the stage's weights.
    """
    context = at["loc"].context
    index, kind, *number = stage
    symbol = ir.FlatSymbolRefAttr.get(stage_name(index, kind, *number), context)
    said = attributes(context, action=str(action), stage=symbol, version=version)
    types = [tuple_type(results, context)] if results else []
    op = ir.Operation.create(ActionOp.OPERATION_NAME, types, pack(values, **at), said, **at)
    return unpack(op.results[0] if types else None, **at)
