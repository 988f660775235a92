"""Mutants of levels 2 and 3: the verifier that refuses each, and the survivors.

    python test/unit/passes/manager/level_mutants.py

judges all and writes the survivors to ``level_survivors.md``, with the reasons that the table has already.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutant_programs import SOURCES, Subject, subject
from op_mutants import op_mutants
from sharding_mutants import Mutant, sharding_mutants
from torch_mlir import ir

from shardc.backends.eager.proof.compare import compare_step
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.manager.program import copy_module
from shardc.passes.manager.reading import Reading

TABLE = Path(__file__).with_name("level_survivors.md")
HEAD = """# Mutants that survive

Changes of levels 2 and 3 that no verifier and no check refuses, and why each is none. Written by
`level_mutants.py`, but for the reasons.

| program | level | mutant | why the step is the same |
|---|---|---|---|
"""
SURVIVES = "survives"


@dataclass(frozen=True)
class Case:
    """A mutant of one of the programs, at level 2 or 3."""

    program: str
    level: int
    mutant: Mutant

    @property
    def key(self) -> tuple[str, str, str]:
        return self.program, str(self.level), f"{self.mutant.kind}, {self.mutant.place}"


def cases(each: int, programs: Iterable[str] = SOURCES) -> list[Case]:
    """At most ``each`` mutants of every kind of the programs at each level, the same ones each time."""
    return [case for name in programs for level in (2, 3) for case in _of_program(name, level, each)]


def _of_program(name: str, level: int, each: int) -> Iterator[Case]:
    module = module_of(subject(name), level)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in (*sharding_mutants(module), *op_mutants(module)):
        kinds.setdefault(mutant.kind, []).append(mutant)
    for kind, found in kinds.items():
        chosen = random.Random(f"{name} {level} {kind}").sample(range(len(found)), min(each, len(found)))
        yield from (Case(name, level, found[n]) for n in sorted(chosen))


def module_of(of: Subject, level: int) -> ir.Module:
    return of.two if level == 2 else of.three


def judge(case: Case) -> str:
    """Who refuses a mutant: ``verify-level``, an op's own verifier, another pass, the check; or nobody."""
    of = subject(case.program)
    if refused := _refused(case):
        return refused
    module = copy_module(module_of(of, case.level))
    case.mutant.apply(module)
    try:
        if case.level == 2:
            run(module, build("dist-partition,verify-level{level=3}"), verify_each=False)
        passed = compare_step(of.one, module, of.inputs).passed
    except LevelBroken:
        return "verify-level 3"
    except ShardcError as error:
        return type(error).__name__
    return SURVIVES if passed else "check"


@cache
def _read_once(name: str, level: int) -> Reading:
    """A copy of a program to change attributes in, and to change them back."""
    reading = Reading(copy_module(module_of(subject(name), level)))
    if level == 2:
        assert reading.program is not None
    return reading


def _refused(case: Case) -> str:
    """Which verifier refuses a mutant; empty if none does."""
    if case.mutant.undo is None:
        module = copy_module(module_of(subject(case.program), case.level))
        case.mutant.apply(module)
        return _verdict(Reading(module), case.level)
    reading = _read_once(case.program, case.level)
    case.mutant.apply(reading.module)
    try:
        return _verdict(reading, case.level)
    finally:
        case.mutant.undo(reading.module)


def _verdict(reading: Reading, level: int) -> str:
    try:
        reading.module.operation.verify()
        run(reading.module, build(f"verify-level{{level={level}}}"), verify_each=False, reading=reading)
    except ir.MLIRError:
        return "op verifier"
    except LevelBroken:
        return f"verify-level {level}"
    return ""


def read_table() -> dict[tuple[str, str, str], str]:
    """The reason for each survivor of the table, by its key."""
    rows = re.findall(r"^\| (.+?) \| ([23]) \| (.+?) \| (.*?) \|$", TABLE.read_text(), re.MULTILINE)
    return {(program, level, mutant): reason for program, level, mutant, reason in rows}


def main() -> None:
    reasons, counts, survivors = read_table() if TABLE.exists() else {}, Counter[tuple[str, str]](), []
    for case in cases(EACH):
        verdict = judge(case)
        counts[case.mutant.kind, verdict] += 1
        if verdict == SURVIVES:
            survivors.append(case.key)
            print("survives:", *case.key, flush=True)
    TABLE.write_text(HEAD + "".join(f"| {' | '.join(k)} | {reasons.get(k, '')} |\n" for k in survivors))
    for (kind, verdict), count in sorted(counts.items()):
        print(f"{kind}: {verdict} {count}")


EACH = 8
"""Mutants of one kind of one program and level; together there must be 700."""

if __name__ == "__main__":
    main()
