"""Check that an emitted program of a pipeline follows its schedule, from its text alone."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import RankProgramBroken
from shardc.dialects.pipe.rank_function import function_name, rank_functions
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.passes.pipeline.checks.check_rank_programs import check_events
from shardc.passes.pipeline.checks.rank_events import Event, sums_of_stages


def check_program(text: str, module: ir.Module) -> None:
    """Check the actions, sends and receives of a program that was emitted from ``module``.

    A module without a pipeline is not checked. Raises RankProgramBroken.
    """
    op = find_schedule(module)
    if op is None:
        return
    schedule, sums = read_schedule(op), sums_of_stages(module)
    parsed, lines = ast.parse(text), text.splitlines()
    steps = {node.name: node for node in parsed.body if isinstance(node, ast.FunctionDef)}
    constants = [node for node in parsed.body if isinstance(node, ast.Assign)]
    (labels,) = [ast.literal_eval(node.value) for node in constants if _assigns(node, "ACTIONS")]
    ranks = []
    for rank, row in zip(range(len(rank_functions(module))), labels, strict=True):
        reader = _Reader(lines, sums, [label for label in row.split() if _is_action(label)])
        ranks.append(list(reader.read(steps[function_name(rank)])))
        if any(True for _ in reader.labels):
            problem = "ACTIONS lists more actions than the program runs"
            raise RankProgramBroken(rank=rank, schedule=schedule.name, problem=problem)
    check_events(schedule, ranks, sums)


def _assigns(node: ast.Assign, name: str) -> bool:
    return [ast.unparse(target) for target in node.targets] == [name]


def _is_action(label: str) -> bool:
    return label.rstrip("0123456789")[-1] in "FBIWO"


class _Reader:
    """Reader of one rank's function. ``labels``: labels in ``ACTIONS`` whose actions are still to come.

    The group of a message is part of its identity, in place of the types at level 3.
    """

    def __init__(self, lines: list[str], sums: Mapping[str, int], labels: list[str]) -> None:
        self._lines, self._sums, self.labels = lines, sums, iter(labels)
        self._messages: dict[str, Event] = {}
        self._handed: dict[str, tuple[str, ...]] = {}

    def read(self, function: ast.FunctionDef) -> Iterator[Event]:
        for node in function.body:
            call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
            if isinstance(node, ast.Assign) and isinstance(call, ast.List):
                self._handed |= dict.fromkeys(_names(node.targets[0]), _names(ast.Tuple(call.elts)))
            if isinstance(call, ast.Call):
                targets = node.targets[0] if isinstance(node, ast.Assign) else None
                yield from self._event(call, _names(targets), node.lineno)

    def _event(self, call: ast.Call, made: tuple[str, ...], line: int) -> Iterator[Event]:
        function, tag = ast.unparse(call.func), self._lines[line - 1].partition("  # ")[2]
        where, given = f"program.py:{line}", {word.arg: word.value for word in call.keywords}
        if function == "rank.send":
            group, to = ast.unparse(given["axes"]), _number(given["to"])
            yield Event("send", tag, to, _names(call.args[0]), types=group, where=where)
        elif function == "rank.receive":
            group, source = ast.unparse(given["axes"]), _number(given["source"])
            event = Event("receive", tag, source, makes=made, types=group, where=where)
            self._messages.update((name, event) for name in made)
            yield event
        elif (handle := function.removesuffix(".wait")) in self._messages:
            started = self._messages[handle]
            yield Event("wait", started.label, started.peer, (handle,), made, where=where)
        elif function in self._sums:
            _, number, *values = call.args
            kept = slice(0, -self._sums[function] or None)
            named = itertools.chain.from_iterable(map(_names, values))
            given = itertools.chain.from_iterable(self._handed.get(name, (name,)) for name in named)
            reads = tuple(given)[kept]
            label = next(self.labels, "nothing")
            makes, count = made[kept], _number(number)
            yield Event("action", label, -1, reads, makes, body=function, number=count, where=where)


def _names(node: ast.expr | None) -> tuple[str, ...]:
    """Return the variables of an expression, which is one or a tuple of them."""
    parts = node.elts if isinstance(node, ast.Tuple) else [] if node is None else [node]
    return tuple(part.id for part in parts if isinstance(part, ast.Name))


def _number(node: ast.expr) -> int:
    return int(ast.literal_eval(node))
