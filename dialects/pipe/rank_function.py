"""The functions that the ranks of a pipeline run: ``@step_0``, ``@step_1``, ... of a module of level 3."""

from torch_mlir import ir

from shardc.dialects.pipe.schedule_op import find_schedule


def function_name(rank: int) -> str:
    """Return the symbol of a rank's function."""
    return f"step_{rank}"


def rank_functions(module: ir.Module) -> list[ir.Operation]:
    """Return the functions of a pipeline's ranks in order; empty for a module without a ``pipe.schedule``."""
    schedule = find_schedule(module)
    if schedule is None:
        return []
    ops = (op.operation for op in module.body.operations)
    named = {op.attributes["sym_name"].value: op for op in ops if op.name == "func.func"}
    return [named[function_name(rank)] for rank in range(len(schedule.attributes["orders"]))]


def pipeline_axis(module: ir.Module) -> str | None:
    """Return the mesh axis of a pipeline's ranks, or None if the module is no pipeline."""
    schedule = find_schedule(module)
    return None if schedule is None else schedule.attributes["axis"].value
