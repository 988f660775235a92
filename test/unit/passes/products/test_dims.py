"""The dim along which devices share a product: no more padding than needed, then the longest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.passes.manager.program import Program, read_program
from shardc.passes.products.dims import best_dim
from shardc.passes.products.repeated import Repeated

STEP = """
func.func @step(%x: !torch.vtensor<[{rows},3],f32>, %w: !torch.vtensor<[3,64],f32>) -> !torch.vtensor<[{b},{n},64],f32> {{
  %0 = torch.aten.mm %x, %w : !torch.vtensor<[{rows},3],f32>, !torch.vtensor<[3,64],f32> -> !torch.vtensor<[{rows},64],f32>
  %b = torch.constant.int {b}
  %n = torch.constant.int {n}
  %c = torch.constant.int 64
  %s = torch.prim.ListConstruct %b, %n, %c : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %1 = torch.aten.view %0, %s : !torch.vtensor<[{rows},64],f32>, !torch.list<int> -> !torch.vtensor<[{b},{n},64],f32>
  return %1 : !torch.vtensor<[{b},{n},64],f32>
}}
"""  # noqa: E501


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context():
        yield


def program_of(b: int, n: int) -> Program:
    found = read_program(ir.Module.parse(STEP.format(b=b, n=n, rows=b * n)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("b", "n", "ways", "dim"),
    [(4, 16, 4, 1), (16, 4, 4, 0), (4, 10, 4, 0), (3, 10, 4, 1), (2, 6, 4, 1)],
)
def test_the_dim_with_the_least_padding(b: int, n: int, ways: int, dim: int) -> None:
    program = program_of(b, n)
    chosen = best_dim(program, Repeated(0, ("context",), (1, 1), 1.0), ways)
    assert chosen is not None
    assert (chosen.value, chosen.dim) == (program.nodes[1].results[0], dim)


def test_rows_of_a_batch_of_one() -> None:
    program = program_of(1, 8)
    chosen = best_dim(program, Repeated(0, ("context",), (1, 1), 1.0), 8)
    assert chosen is not None
    assert (chosen.value, chosen.dim) == (program.nodes[0].results[0], 0)


def test_blocks_of_other_axes_count() -> None:
    """8 rows in 4 blocks have no room for 4 more devices; 16 have."""
    product = Repeated(0, ("context",), (4, 1), 1.0)
    assert best_dim(program_of(1, 8), product, 4) is None
    assert best_dim(program_of(1, 16), product, 4) is not None


def test_blocks_of_a_merged_dim_are_those_of_its_first_dim() -> None:
    """The batch of 8 has 4 blocks already, so 4 more devices share 8 rows of each."""
    chosen = best_dim(program_of(8, 8), Repeated(0, ("context",), (4, 1), 1.0), 4)
    assert chosen is not None and chosen.dim == 1


def test_columns_and_short_dims_stay_whole() -> None:
    assert best_dim(program_of(1, 3), Repeated(0, ("context",), (1, 1), 1.0), 4) is None
