"""Each small change of a step's level 2 or 3 is refused: by a verifier, by another pass, or by the check."""

from __future__ import annotations

from collections import Counter

import pytest
from level_mutants import EACH, SURVIVES, Case, cases, judge, read_table
from sharding_mutants import TERMS

QUICK = "zero3"
"""The program whose mutants the quick tests try."""
STATIC = {"op verifier", "verify-level 2", "verify-level 3"}


def _judged(chosen: list[Case]) -> dict[Case, str]:
    return {case: judge(case) for case in chosen}


def _check(found: dict[Case, str]) -> None:
    """Only mutants of the table survive, and of those that change partial terms six of seven are seen."""
    survivors = {case.key for case, verdict in found.items() if verdict == SURVIVES}
    assert survivors <= {key for key, reason in read_table().items() if reason}
    terms = Counter(verdict in STATIC for case, verdict in found.items() if case.mutant.kind == TERMS)
    assert terms[True] >= 6 / 7 * terms.total()


def test_mutants_of_one_program() -> None:
    found = _judged(cases(4, [QUICK]))
    assert len(found) > 40
    _check(found)


@pytest.mark.slow
def test_all_mutants() -> None:
    found = _judged(cases(EACH))
    assert len(found) >= 700
    _check(found)
    gone = [key for key in read_table() if found.get(_case(found, key)) != SURVIVES]
    assert not gone, "the table has mutants that do not survive, or are no more"


def _case(found: dict[Case, str], key: tuple[str, str, str]) -> Case | None:
    return next((case for case in found if case.key == key), None)
