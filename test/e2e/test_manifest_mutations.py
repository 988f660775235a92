"""Mutations of every part of a manifest and of a saved plan: each is refused by a named error."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardc.cli import main
from shardc.options.plan_file import plan_problem
from shardc.runtime import check
from shardc.runtime.errors import BadArtefact

SCRIPT = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 8)
        self.tied = nn.Linear(8, 16, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, x, count, pair):
        hidden = self.second(self.first(x)).relu()
        return self.tied(self.last(hidden))

def build():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = {"x": torch.randn(8, 8), "count": 3, "pair": [torch.randn(8, 16), None]}
    return model, optimizer, batch, lambda out, batch: (out - batch["pair"][0]).square().mean()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artefact with kernels, batch norm's buffers, a tied weight, and a batch of several kinds."""
    root = tmp_path_factory.mktemp("mutated")
    (root / "train.py").write_text(SCRIPT)
    options = ["--mesh", "data=2", "--plan", "zero3", "-o", str(root / "out")]
    assert main(["compile", str(root / "train.py"), *options]) == 0
    return root / "out"


FREE = {"value": "a setting may be of any kind", "constant": "so may a constant of a batch"}
"""Keys of what is JSON of any kind, and why nothing about it can be wrong."""
NULLABLE = {"dims"}
"""Keys of what may be null in a plan, which then says nothing of that."""
TEXTS = {"target", "why", "text", "pipeline"}
"""Keys of texts that may be empty."""
OPTIONAL = {"padded", "interleaved", "fill", "peak_bytes", "pipeline"}


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every part within a value by its path: of a long list the first and the last."""
    if isinstance(value, dict):
        chosen = list(value.items())
    elif isinstance(value, list):
        chosen = [(n, value[n]) for n in sorted({0, len(value) - 1})] if value else []
    else:
        return
    for key, part in chosen:
        yield (*path, key), part
        if not (isinstance(key, str) and key in FREE):
            yield from parts(part, (*path, key))


def others(path: tuple[Any, ...], part: Any) -> Iterator[tuple[str, Any]]:
    """What may not stand in the place of a part: other kinds, and values out of range."""
    wrong = [True, "wrong", 5, 5.5, [], [None], {}, {"unknown": 1}, None]
    kinds = {bool: bool, int: int, float: (int, float), str: str, list: list, dict: dict}
    if isinstance(part, bool):
        yield from (("kind", w) for w in wrong if type(w) is not bool)
    elif part is not None:
        for value in wrong:
            same = kinds[type(part)]
            is_same = isinstance(value, same) and not isinstance(value, bool)
            if not is_same and not (value is None and path[-1] in NULLABLE):
                yield "kind", value
    if type(part) is int:
        yield "range", -(1 << 63) - 1
        yield "range", 1 << 64
    if isinstance(part, float):
        yield "range", float("nan")
    if isinstance(part, str) and path[-1] not in TEXTS:
        yield "range", ""


def mutations(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Missing, of another kind, out of range, unknown."""
    for path, part in [((), whole), *parts(whole)]:
        name = "/".join(map(str, path))
        if path and isinstance(path[-1], str) and path[-1] in FREE:
            continue
        if isinstance(part, dict) and not is_open(path):
            changed = copy.deepcopy(whole)
            at(changed, path)["unknown"] = 1
            yield f"{name}: unknown", changed
        if not path:
            continue
        if isinstance(path[-1], str) and not is_open(path[:-1]) and path[-1] not in OPTIONAL:
            changed = copy.deepcopy(whole)
            del at(changed, path[:-1])[path[-1]]
            yield f"{name}: missing", changed
        for kind, value in others(path, part):
            changed = copy.deepcopy(whole)
            at(changed, path[:-1])[path[-1]] = value
            yield f"{name}: {kind} {value!r}", changed


def is_open(path: tuple[Any, ...]) -> bool:
    """Whether an object is one whose keys are names: files, tied weights, a batch's own keys."""
    return path in {("files",), ("tied",)} or (path != () and path[-1] == "mapping")


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@pytest.mark.slow
def test_every_mutation_of_a_manifest_is_refused(folder: Path, tmp_path: Path) -> None:
    whole = json.loads((folder / check.MANIFEST).read_text())
    assert check.read_manifest(folder) == whole
    passed, tried = [], 0
    for name, changed in mutations(whole):
        tried += 1
        (tmp_path / check.MANIFEST).write_text(json.dumps(changed))
        try:
            check.read_manifest(tmp_path)
            passed.append(name)
        except BadArtefact as error:
            assert str(error).count("\n") == 2  # what, where, what to do
    assert not passed and tried > 500, passed


OTHERS = {
    "another version": lambda m: m["schema"].update(version=5),
    "an older version": lambda m: m["schema"].update(version=3),
    "another program's": lambda m: m["schema"].update(name="other"),
    "two axes of one name": lambda m: m["mesh"].append(m["mesh"][0]),
    "a mesh beyond 64 bits": lambda m: m["mesh"].extend(
        {"name": f"a{n}", "size": 1 << 40, "kind": "space"} for n in range(2)
    ),
    "an axis that is not there": lambda m: m["mesh"][0].update(name="other"),
    "an argument twice": lambda m: m["arguments"].append(m["arguments"][0]),
    "a batch without a leaf": lambda m: m["batch"].update(mapping={}),
    "a hyperparameter less": lambda m: m["hyperparameters"].pop(),
    "a tied weight that is not there": lambda m: m["tied"].update({"tied.weight": "nothing"}),
    "kernels for nothing": lambda m: m.update(target=""),
    "no loss": lambda m: m["results"].pop(next(i for i, r in enumerate(m["results"]) if r["role"] == "loss")),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mutation", OTHERS)
def test_parts_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, mutation: str) -> None:
    changed = json.loads((folder / check.MANIFEST).read_text())
    OTHERS[mutation](changed)
    (tmp_path / check.MANIFEST).write_text(json.dumps(changed))
    with pytest.raises(BadArtefact):
        check.read_manifest(tmp_path)


def test_every_mutation_of_a_saved_plan_is_refused(folder: Path) -> None:
    whole = json.loads((folder / "plan.json").read_text())
    assert plan_problem(whole) is None
    passed = [name for name, changed in mutations(whole) if plan_problem(changed) is None]
    assert not passed, passed
    for version in (0, 2, "1", True):
        assert plan_problem(whole | {"version": version}) is not None
