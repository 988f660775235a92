"""A damaged manifest is named entry by entry, before any rank trips over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardc.artefact.manifest_form import FILES, KERNEL_FILES, form_problem


def manifest() -> dict[str, Any]:
    port = {"name": "w", "role": "param", "shape": [4, 2], "dtype": "float32"}
    port["sharding"] = {"dims": [[["data", 1, 2]], []], "partial": []}
    return {
        "mesh": [{"name": "data", "size": 2, "kind": "space"}],
        "arguments": [port],
        "results": [dict(port)],
        "operators": [{"name": "mylib::row_norm"}],
        "pipeline": [],
        "kernels": [{"name": "mul_add_0", "calls": 2, "ops": ["aten.mul.Tensor", "aten.add.Tensor"]}],
        "target": "x86_64 avx2",
        "hyperparameters": [{"name": "group0.lr", "group": 0, "key": "lr", "index": None, "value": 0.1}],
        "baked": [{"group": 0, "key": "eps", "value": 1e-8}],
        "files": {name: {"size": 1, "sha256": "0"} for name in (*FILES, "kernels.so", *KERNEL_FILES)},
    }


def test_a_whole_manifest_passes() -> None:
    assert form_problem(manifest()) is None


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda m: m["mesh"][0].pop("size"), "mesh[0] has no 'size'"),
        (lambda m: m["mesh"][0].update(size="2"), "mesh[0] has '2' for 'size'"),
        (lambda m: m["mesh"][0].update(size=True), "mesh[0] has True for 'size'"),
        (lambda m: m["mesh"][0].update(size=0), "mesh axis 'data' has size 0"),
        (lambda m: m["mesh"][0].update(kind="spice"), "kind 'spice'"),
        (lambda m: m["mesh"].clear(), "mesh has no axes"),
        (lambda m: m["arguments"].append(5), "arguments[1] is 5, not an object"),
        (lambda m: m["arguments"][0].pop("role"), "arguments[0] has no 'role'"),
        (lambda m: m["arguments"][0].update(dtype="floaty"), "arguments[0] can't be read"),
        (lambda m: m["arguments"][0].update(shape=[4]), "arguments[0] has shape [4] and 2 dims"),
        (lambda m: m["arguments"][0].update(shape=["4", 2]), "arguments[0] has shape ['4', 2]"),
        (
            lambda m: m["arguments"][0].update(padded=[3, 2]),
            "arguments[0] has shape [4, 2] and padded shape [3, 2]",
        ),
        (
            lambda m: m["arguments"][0].update(padded=[4]),
            "arguments[0] has shape [4, 2] and padded shape [4]",
        ),
        (lambda m: m["results"][0].update(sharding={"dims": [["data"], []]}), "results[0] can't be read"),
        (lambda m: m["operators"].append("mylib::other"), "operators[1] is 'mylib::other', not an object"),
        (lambda m: m["hyperparameters"][0].pop("name"), "hyperparameters[0] has no 'name'"),
        (lambda m: m["files"].update({"run.py": 3}), "files['run.py'] is 3, not an object"),
        (lambda m: m["files"]["run.py"].pop("sha256"), "files['run.py'] has no 'sha256'"),
        (lambda m: m["files"].pop("program.py"), "files does not list program.py"),
        (lambda m: m["files"].pop("kernels.so"), "files does not list kernels.so"),
        (lambda m: m["kernels"][0].pop("calls"), "kernels[0] has no 'calls'"),
        (lambda m: m["pipeline"].append({"name": "data"}), "pipeline[0] has no 'arguments'"),
        (
            lambda m: m["pipeline"].append({"name": "data", "arguments": [[]]}),
            "arguments for 1 ranks along the axis 'data' of [2] ways",
        ),
        (
            lambda m: m["pipeline"].append({"name": "data", "arguments": [[["param", "v"]], []]}),
            "names ['param', 'v'], which is not an argument",
        ),
    ],
)
def test_a_damaged_entry_is_named(damage: Callable[[dict[str, Any]], object], problem: str) -> None:
    damaged = manifest()
    damage(damaged)
    found = form_problem(damaged)
    assert found is not None and problem in found


def test_kernels_for_a_gpu_are_files_of_their_own() -> None:
    whole = manifest()
    whole["target"] = "sm_90"
    assert form_problem(whole) == "files does not list kernels/mul_add_0.py"
    whole["files"]["kernels/mul_add_0.py"] = whole["files"].pop("kernels.so")
    assert form_problem(whole) is None
