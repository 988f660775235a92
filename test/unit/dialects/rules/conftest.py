"""Every sample on which a rule is proved is also searched for layouts that the rule does not offer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardc.dialects.rules.proving.proof import Proof

sys.path.append(str(Path(__file__).parent))  # test folders are no packages in pytest's importlib mode

from completeness import Layout, not_offered
from not_offered import FILE, unexplained

FOUND: dict[str, dict[Layout, str]] = {}
"""For each operator the layouts found, with the rule that does not offer them; for
``list_not_offered.py``.
"""


@pytest.fixture(autouse=True)
def _complete(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes ``prove``, where a test module calls it for a registered rule, fail on a layout that nothing
    explains.
    """
    prove = getattr(request.module, "prove", None)
    if prove is not None and not request.module.__name__.endswith("test_proof"):

        def search_too(target: str, args: Any, **options: Any) -> Proof:
            proof = prove(target, args, **options)
            if options.get("rule") is None and options.get("values", True):
                found = not_offered(target, args, proof.rule)
                FOUND.setdefault(target, {}).update(dict.fromkeys(found, str(proof.rule)))
                new = "; ".join(map(str, unexplained(target, found)))
                assert not new, (
                    f"{target} bears {new}, which its rule {proof.rule} does not offer: offer it, or say "
                    f"why in {FILE.name}"
                )
            return proof

        monkeypatch.setattr(request.module, "prove", search_too)
    yield
