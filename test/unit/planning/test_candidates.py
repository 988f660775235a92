"""Which plans and meshes are compared."""

from __future__ import annotations

from math import prod

from shardc.cost.cluster.names import find_cluster
from shardc.planning.candidates import mesh_of_levels, meshes_of, micro_batches, plans_of


def test_products_of_presets_on_a_mesh() -> None:
    found = {c.plan for c in plans_of({"data": 4, "tensor": 2}, 8)}
    data, tensor = ("data", "zero1", "zero2", "zero3"), ("tensor", "sequence")
    assert found == {f"{d}*{t}" for d in data for t in tensor}


def test_a_pipeline_has_micro_batches() -> None:
    (candidate,) = plans_of({"pipe": 4}, 64)
    assert (candidate.plan, candidate.micro_batches) == ("pipeline", 32)


def test_micro_batches_divide_the_samples() -> None:
    for samples in range(1, 40):
        for stages in range(1, 5):
            count = micro_batches(samples, stages)
            assert samples % count == 0 and count <= 8 * stages


def test_meshes_have_all_devices_and_divide_the_batch() -> None:
    found = list(meshes_of(16, node=8, batch=8, layers=4))
    assert {"data": 8, "tensor": 2} in found and {"pipe": 2, "tensor": 8} in found
    assert all(prod(mesh.values()) == 16 for mesh in found)
    assert all(8 % mesh.get("data", 1) == 0 for mesh in found)
    assert all(mesh.get("tensor", 1) <= 8 and mesh.get("pipe", 1) <= 4 for mesh in found)
    assert len(found) == len({tuple(mesh.items()) for mesh in found})


def test_one_device_is_a_mesh() -> None:
    assert list(meshes_of(1, node=8, batch=3, layers=2)) == [{"data": 1}]


def test_a_search_has_an_axis_for_each_level_of_links() -> None:
    def mesh(name: str) -> list[tuple[str, int]]:
        return list(mesh_of_levels(find_cluster(name)).items())

    assert mesh("h100-8x64") == [("infiniband", 64), ("nvlink", 8)]
    assert mesh("h100-8") == [("nvlink", 8)]
    assert mesh("h100-1") == [("data", 1)]
