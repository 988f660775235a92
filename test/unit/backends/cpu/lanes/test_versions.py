"""Loops with sines in two versions: the quick one where all arguments of a piece are small."""

from __future__ import annotations

import pytest
import torch
from bodies import Body, compiled
from torch_mlir import ir

from shardc.backends.cpu.lanes.expand import SMALL
from shardc.backends.cpu.lanes.versions import PIECE, add_versions


def _written(code: str) -> str:
    text = f"""
    func.func @f(%x: memref<99xf32>, %y: memref<99xf32>, %start: f32) -> f32 {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %end = arith.constant 99 : index
      %total = scf.for %at = %c0 to %end step %c1 iter_args(%sum = %start) -> f32 {{
        %v = memref.load %x[%at] : memref<99xf32>
        {code}
        %t = arith.addf %r, %sum : f32
        scf.yield %t : f32
      }}
      return %total : f32
    }}"""
    with ir.Context():
        module = ir.Module.parse(text)
        add_versions(module)
        assert module.operation.verify()
        return str(module)


@pytest.mark.parametrize(
    "code",
    [
        "%r = math.sin %v : f32",
        "%s = math.sin %v : f32\n%c = math.cos %v : f32\n%r = arith.mulf %s, %c : f32",
        "%r = math.sin %v : f32\nmemref.store %r, %x[%at] : memref<99xf32>",
    ],
    ids=["a sine", "sine and cosine of one argument", "in place"],
)
def test_two_versions(code: str) -> None:
    text = _written(code)
    calls = code.count("math.sin") + code.count("math.cos")
    assert text.count(SMALL) == calls and text.count("math.sin") + text.count("math.cos") == 2 * calls


@pytest.mark.parametrize(
    "code",
    [
        "%r = math.exp %v : f32",
        "%r = math.sin %sum : f32",
        "memref.store %v, %y[%at] : memref<99xf32>\n%u = memref.load %y[%at] : memref<99xf32>\n"
        "%r = math.sin %u : f32",
        "%u = memref.load %y[%c0] : memref<99xf32>\n%r = math.sin %u : f32\n"
        "memref.store %r, %y[%c0] : memref<99xf32>",
        "%w = arith.extf %v : f32 to f64\n%s = math.sin %w : f64\n%r = arith.truncf %s : f64 to f32",
    ],
    ids=["no sine", "of what is carried", "of what was written", "of what the step before wrote", "f64"],
)
def test_one_version(code: str) -> None:
    assert SMALL not in _written(code) and "scf.if" not in _written(code)


NESTED = "%s = math.sin %v : f32\n%u = arith.mulf %s, %v : f32\n%r = math.cos %u : f32"


def test_an_argument_that_depends_on_a_sine_is_watched() -> None:
    text = _written(NESTED)
    assert text.count(SMALL) == 2 and text.count("scf.if") == 2 and text.count("math.cos") == 2


def test_a_loop_that_reads_what_it_writes_does_not_run_twice() -> None:
    text = _written(f"{NESTED}\nmemref.store %r, %x[%at] : memref<99xf32>")
    assert text.count(SMALL) == 1 and text.count("scf.if") == 1


def test_sines_of_sines_over_pieces_with_and_without_large_arguments() -> None:
    body = Body("sines_of_sines")
    x, y = body.argument((4, 3 * PIECE + 5)), body.argument((4, 3 * PIECE + 5))
    code = "%s = math.sin %0 : f32\n%u = arith.mulf %s, %1 : f32\n%t = math.cos %u : f32"
    body.results = [
        body.map([x, y], code.replace("%t", "%r")),
        body.reduce([x, y], f"{code}\n%r = arith.addf %t, %acc : f32", [1], "2.0"),
    ]
    values = torch.linspace(-20, 20, 4 * (3 * PIECE + 5)).reshape(4, -1)
    factors = torch.ones_like(values)
    factors[0, 5], factors[1, PIECE + 7], factors[2, -1] = 1e7, torch.inf, torch.nan
    values[3, 9] = 1e20
    found, total = compiled(body)(values, factors)
    exact = (values.double().sin().float() * factors).double().cos()
    exact[0, 5] = found[0, 5]  # a product of 1e7 has the error of its factor
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=2e-6, equal_nan=True)
    torch.testing.assert_close(total.double(), exact.sum(1) + 2, rtol=1e-5, atol=2e-4, equal_nan=True)
    assert abs(found[0, 5]) <= 1


def test_sums_of_sines_over_pieces_with_and_without_large_arguments() -> None:
    body = Body("sums_of_sines")
    x = body.argument((4, 3 * PIECE + 5))
    body.results = [body.reduce([x], "%s = math.sin %0 : f32\n%r = arith.addf %s, %acc : f32", [1], "2.0")]
    values = torch.linspace(-20, 20, 4 * (3 * PIECE + 5)).reshape(4, -1)
    values[1, PIECE + 7], values[2, -1], values[3, 0] = 1e20, -3e38, torch.nan
    (found,) = compiled(body)(values)
    exact = values.double().sin().sum(1) + 2
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=2e-4, equal_nan=True)
