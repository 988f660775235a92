"""The module tree of the page: repeated layers are one, sizes add up, stages keep layers apart."""

from __future__ import annotations

import torch

from shardc.planning.page.tree import module_tree
from shardc.planning.placement import ArgumentPlacement, PlacedArgument
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh

MESH = Mesh((("data", 4), ("tensor", 2)))
CUT = ((("tensor", 1, 2),), (("data", 1, 4),))


def weight(name: str, why: str = "tensor", stages: tuple[int, ...] = (), rows: int = 64) -> PlacedArgument:
    return PlacedArgument(Leaf(name, "param", (rows, 8), torch.bfloat16, CUT), why, stages)


def moment(name: str) -> PlacedArgument:
    return PlacedArgument(Leaf(f"{name}/exp_avg", "opt_state", (64, 8), torch.bfloat16, CUT), "zero1")


def layers(count: int) -> list[str]:
    return [f"model.layers.{n}.{part}.weight" for n in range(count) for part in ("q", "k")]


def test_repeated_layers_are_one() -> None:
    arguments = [weight("model.embed.weight"), *map(weight, layers(32)), *map(moment, layers(32))]
    (model,) = module_tree(ArgumentPlacement(MESH, arguments))
    embed, folded = model["children"]
    assert embed["name"] == "embed.weight" and "repeat" not in embed
    assert (folded["name"], folded["repeat"]) == ("layers.0-31", 32)
    assert [child["name"] for child in folded["children"]] == ["q.weight", "k.weight"]
    # 2 bytes an element; a device holds an eighth of the weight and of its moment
    assert folded["bytes"] == 32 * 2 * 64 * 8 * 2
    assert folded["held_bytes"] == folded["bytes"] // 8 * 2
    assert model["bytes"] == folded["bytes"] + 64 * 8 * 2


def test_a_layer_that_differs_ends_a_run() -> None:
    arguments = [weight(name, rows=32 if ".2." in name else 64) for name in layers(5)]
    (model,) = module_tree(ArgumentPlacement(MESH, arguments))
    (block,) = model["children"]
    assert [(child["name"], child["repeat"]) for child in block["children"]] == [
        ("0-1", 2),
        ("2", 1),
        ("3-4", 2),
    ]


def test_a_reason_that_names_the_layer_is_equal() -> None:
    arguments = [
        weight(name, why=f"data follows {name}_a (zero3), through mm at a.py:1") for name in layers(4)
    ]
    (model,) = module_tree(ArgumentPlacement(MESH, arguments))
    assert (model["name"], model["repeat"]) == ("model.layers.0-3", 4)
    assert model["children"][0]["why"].endswith("q.weight_a (plan: zero3), through mm at a.py:1")


def test_stages_keep_layers_apart() -> None:
    arguments = [weight(name, stages=(int(name.split(".")[2]) // 2,)) for name in layers(4)]
    (model,) = module_tree(ArgumentPlacement(MESH, arguments))
    (block,) = model["children"]
    assert [(child["name"], child["stages"]) for child in block["children"]] == [("0-1", [0]), ("2-3", [1])]
    assert model["stages"] == [0, 1]


def test_a_weight_says_how_it_is_cut() -> None:
    (found,) = module_tree(ArgumentPlacement(MESH, [weight("w", why="tensor, zero3")]))
    assert found["dims"] == [[["tensor", 1, 2]], [["data", 1, 4]]]
    assert found["placed"] == "sharded on dim 0 over tensor 2, dim 1 over data 4"
    assert (found["why"], found["shape"], found["dtype"]) == ("plan: tensor and zero3", [64, 8], "bfloat16")


def test_numbered_modules_of_a_single_weight_fold() -> None:
    (block,) = module_tree(ArgumentPlacement(MESH, [weight(f"mlp.{n}.weight") for n in range(3)]))
    assert (block["name"], block["repeat"]) == ("mlp.0-2", 3)
