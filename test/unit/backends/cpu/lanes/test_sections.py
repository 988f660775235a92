"""Loops cut into sections: of what IR, and the values of kernels with odd sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from shardc.backends.cpu.lanes.sections import cut_loops

sys.path.append(str(Path(__file__).parents[1]))
from test_lowered_graphs import check

aten = torch.ops.aten


def _cut(code: str, size: int = 100, index: str = "%at") -> str:
    """Return the loop over ``size`` steps with ``code``, which computes the address %r of a copy."""
    text = f"""
    func.func @f(%x: memref<1000xf32>, %y: memref<1000xf32>, %q: memref<1000xi64>) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %end = arith.constant {size} : index
      scf.for %at = %c0 to %end step %c1 {{
        %i = arith.index_cast {index} : index to i64
        {code}
        %p = arith.index_cast %r : i64 to index
        %v = memref.load %x[%p] : memref<1000xf32>
        memref.store %v, %y[%at] : memref<1000xf32>
      }}
      return
    }}"""
    with ir.Context():
        module = ir.Module.parse(text)
        cut_loops(module)
        PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
        assert module.operation.verify()
        return str(module)


DECIDED = {
    "a choice": (
        """%k = arith.constant 40 : i64
        %c = arith.cmpi slt, %i, %k : i64
        %b = arith.subi %i, %k : i64
        %r = arith.select %c, %i, %b : i64""",
        2,
    ),
    "one of two": (
        """%k = arith.constant 40 : i64
        %c = arith.cmpi eq, %i, %k : i64
        %z = arith.constant 0 : i64
        %r = arith.select %c, %z, %i : i64""",
        3,
    ),
    "a reflection": (
        """%k = arith.constant 5 : i64
        %n = arith.constant 60 : i64
        %s = arith.subi %i, %k : i64
        %a = math.absi %s : i64
        %d = arith.subi %n, %a : i64
        %e = math.absi %d : i64
        %r = arith.subi %n, %e : i64""",
        3,
    ),
    "an edge": (
        """%k = arith.constant 90 : i64
        %z = arith.constant 3 : i64
        %m = arith.maxsi %i, %z : i64
        %r = arith.minsi %m, %k : i64""",
        3,
    ),
    "never": (
        """%k = arith.constant 100 : i64
        %c = arith.cmpi sge, %i, %k : i64
        %z = arith.constant 0 : i64
        %r = arith.select %c, %z, %i : i64""",
        1,
    ),
}


@pytest.mark.parametrize("name", DECIDED)
def test_comparisons_of_addresses_are_constants(name: str) -> None:
    code, loops = DECIDED[name]
    found = _cut(code)
    assert not any(op in found for op in ("cmpi", "select", "maxsi", "minsi", "absi")) or loops == 1
    assert found.count("scf.for") + (found.count("memref.load") - found.count("scf.for")) == loops


def test_a_quotient_and_a_rest_are_indices_of_two_loops() -> None:
    code = """%k = arith.constant 32 : i64
        %n = arith.constant 1 : i64
        %d = arith.divsi %i, %k : i64
        %e = arith.remsi %i, %k : i64
        %m = arith.muli %e, %n : i64
        %r = arith.addi %d, %m : i64"""
    found = _cut(code, size=100)
    assert "divsi" not in found and "remsi" not in found
    assert found.count("scf.for") == 3  # three times 32 steps, and 4


@pytest.mark.parametrize("by", [2, 3, 4])
def test_rests_of_a_small_divisor_are_written_out(by: int) -> None:
    found = _cut(f"%k = arith.constant {by} : i64\n%r = arith.divsi %i, %k : i64", size=97)
    assert "divsi" not in found
    assert found.count("scf.for") == 1 and found.count("memref.store") == by + 97 % by


def test_short_sections_are_joined_around_a_long_one() -> None:
    code = "%sum0 = arith.constant 0 : i64\n" + "\n".join(
        f"""%k{n} = arith.constant {n + 1} : i64
        %less{n} = arith.cmpi slt, %i, %k{n} : i64
        %more{n} = arith.addi %sum{n}, %k{n} : i64
        %sum{n + 1} = arith.select %less{n}, %sum{n}, %more{n} : i64"""
        for n in range(20)
    )
    found = _cut(f"{code}\n%r = arith.addi %sum20, %k0 : i64", size=200)
    assert found.count("scf.for") == 2 and found.count("arith.select") > 0


KEPT = {
    "a short loop": (DECIDED["a choice"][0], 20),
    "a number from memory": (
        """%k = memref.load %q[%c0] : memref<1000xi64>
        %c = arith.cmpi slt, %i, %k : i64
        %z = arith.constant 0 : i64
        %r = arith.select %c, %z, %i : i64""",
        100,
    ),
    "a sum that may wrap": (
        """%k = arith.constant 9223372036854775800 : i64
        %s = arith.addi %i, %k : i64
        %z = arith.constant 0 : i64
        %c = arith.cmpi slt, %s, %z : i64
        %r = arith.select %c, %z, %i : i64""",
        100,
    ),
    "many numbers": (
        "%sum0 = arith.constant 0 : i64\n"
        + "\n".join(
            f"""%k{n} = arith.constant {3 * n + 3} : i64
            %less{n} = arith.cmpi slt, %i, %k{n} : i64
            %more{n} = arith.addi %sum{n}, %k{n} : i64
            %sum{n + 1} = arith.select %less{n}, %sum{n}, %more{n} : i64"""
            for n in range(20)
        )
        + "\n%r = arith.addi %sum20, %sum0 : i64",
        100,
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_loops_stay(name: str) -> None:
    code, size = KEPT[name]
    found = _cut(code, size)
    assert "arith.select" in found and found.count("scf.for") == 1


MOVES: dict[str, Callable[[Tensor], object]] = {
    "parts of other sizes": lambda x: torch.cat([x[:, :1], x[:, 1:] - x[:, :-1], x * 2], 1).sin(),
    "a pad": lambda x: F.pad(x + 1, (3, 2), value=-1.5) * 2,
    "a pad of rows and columns": lambda x: F.pad(x[None] * 3, (1, 4, 2, 1)) - 1,
    "a reflection": lambda x: F.pad(x[None] * 3, (min(3, x.shape[1] - 1), 0), mode="reflect") - 1,
    "edges": lambda x: F.pad(x[None] * 3, (5, 70), mode="replicate") - 1,
    "a roll": lambda x: torch.roll(x.exp(), 3, -1) + x,
    "windows": lambda x: x.unfold(1, max(1, x.shape[1] // 3), 2).sum(-1),
    "gradients of slices": lambda x: (
        aten.slice_backward(x, [x.shape[0], x.shape[1] + 7], 1, 3, x.shape[1] + 3, 1) * 2
    ),
    "overlaps": lambda x: aten.unfold_backward(
        x[:, None].expand(-1, 5, -1) * 2, [x.shape[0], 4 * 17 + x.shape[1]], 1, x.shape[1], 17
    ),
    "gaps": lambda x: aten.unfold_backward(
        x[:, None].expand(-1, 3, -1) * 2,
        [x.shape[0], 3 * x.shape[1] + 90],
        1,
        x.shape[1],
        x.shape[1] + 40,
    ),
    "repeats of two": lambda x: x.repeat_interleave(2, -1) * 2 + x.exp().repeat_interleave(2, -1),
    "repeats of three rows": lambda x: x[..., None].expand(-1, -1, 3).flatten(1) + 1,
    "many slices": lambda x: sum(
        aten.slice_backward(x, [x.shape[0], x.shape[1] + 24], 1, n, x.shape[1] + n, 1) * n for n in range(24)
    ),
    "largest of a triangle": lambda x: x.masked_fill(torch.ones_like(x).triu(1) > 0, -torch.inf).amax(1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1, 2, 31, 63, 64, 65, 129, 300])
@pytest.mark.parametrize("name", MOVES)
def test_values(name: str, width: int, threads: int) -> None:
    x = torch.randn(7, width)
    check(MOVES[name], x)
    x[1, width // 2], x[2, -1] = torch.nan, torch.nan
    check(MOVES[name], x)
