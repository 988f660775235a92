"""Integers computed from loop indices: of 32 bits where ranges allow, with the same numbers."""

from __future__ import annotations

import pytest
import torch
from bodies import Body, compiled
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from shardc.backends.cpu.lanes.narrow import narrow_integers


def _narrowed(code: str, size: int = 100) -> str:
    """Return the loop over ``size`` steps with ``code``, which stores the integer %r of 64 bits as f32."""
    text = f"""
    func.func @f(%x: memref<{size}xf32>, %q: memref<{size}xi64>) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %end = arith.constant {size} : index
      scf.for %at = %c0 to %end step %c1 {{
        %i = arith.index_cast %at : index to i64
        {code}
        %v = arith.sitofp %r : i64 to f32
        memref.store %v, %x[%at] : memref<{size}xf32>
      }}
      return
    }}"""
    with ir.Context():
        module = ir.Module.parse(text)
        narrow_integers(module)
        PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
        assert module.operation.verify()
        return str(module)


SHORT = {
    "the index": "%r = arith.addi %i, %i : i64",
    "a distance": "%k = arith.constant 40 : i64\n%d = arith.subi %i, %k : i64\n%r = math.absi %d : i64",
    "a quotient": "%k = arith.constant 7 : i64\n%r = arith.divsi %i, %k : i64",
    "a rest": "%k = arith.constant 7 : i64\n%r = arith.remsi %i, %k : i64",
    "a choice": """%k = arith.constant 7 : i64
        %c = arith.cmpi slt, %i, %k : i64
        %r = arith.select %c, %i, %k : i64""",
}
LONG = {
    "a large product": "%k = arith.constant 100000000 : i64\n%r = arith.muli %i, %k : i64",
    "read from memory": "%m = memref.load %q[%at] : memref<100xi64>\n%r = arith.addi %m, %i : i64",
    "divided by what may be 0": "%k = arith.constant 9 : i64\n%r = arith.divsi %k, %i : i64",
}


@pytest.mark.parametrize("name", SHORT)
def test_short_integers(name: str) -> None:
    assert "i64" not in _narrowed(SHORT[name]).split("scf.for")[1]


@pytest.mark.parametrize("name", LONG)
def test_integers_that_may_be_long(name: str) -> None:
    assert ": i64 to f32" in _narrowed(LONG[name])


def test_positions_in_a_kernel_are_the_same_numbers() -> None:
    body = Body("positions")
    code = """%i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %p = arith.index_cast %i : index to i64
        %q = arith.index_cast %j : index to i64
        %d = arith.subi %q, %p : i64
        %k = arith.constant 3000000 : i64
        %m = arith.muli %d, %k : i64
        %s = arith.sitofp %m : i64 to f32
        %r = arith.addf %s, %0 : f32"""
    body.results = [body.map([body.argument((50, 900))], code)]
    (found,) = compiled(body)(torch.zeros(50, 900))
    assert torch.equal(found, (torch.arange(900)[None] - torch.arange(50)[:, None]).mul(3000000).float())
