"""Values in padding: results never depend on them, and no more padding is filled than necessary.

Programs have 3 rows that 2 devices share, computed as 4. They run whole, with zeros in the padding of their
arguments, as a step gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.interpreter import run as execute
from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.context import new_context
from shardc.dialects.rules.proving.execution import sample
from shardc.passes.manager.pass_pipelines import build, run

STEP = """
"dist.mesh"() {{sym_name = "mesh", axes = [["data", 2, "space"]]}} : () -> ()
func.func @step({arguments}) -> {result} {{
  %int0 = torch.constant.int 0
  %int1 = torch.constant.int 1
  %int3 = torch.constant.int 3
  %int1000 = torch.constant.int 1000
  %false = torch.constant.bool false
  %none = torch.constant.none
  %rows = torch.prim.ListConstruct %int0 : (!torch.int) -> !torch.list<int>
  %column = torch.prim.ListConstruct %int3, %int1 : (!torch.int, !torch.int) -> !torch.list<int>
  {body}
  return %out : {result}
}}
"""
SIZES = {"X": (3, 5), "XT": (5, 3), "Z": (3, 2), "W": (5, 2), "V": (5,), "C": (3, 1), "S": (1, 1)}
"""Types of programs, by what stands for them: 3 are the rows that are padded."""


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with new_context():
        yield


def _padded(body: str, result: str, **arguments: tuple[Tensor, int | None]) -> ir.Module:
    """The program ``body`` on padded shapes. Arguments are (value, the dim that devices cut)."""
    given = []
    for name, (value, cut) in arguments.items():
        dims = ", ".join('["data"]' if d == cut else "[]" for d in range(value.dim()))
        type_ = _type(tuple(value.shape), value.dtype)
        given.append(f"%{name}: {type_} {{dist.sharding = #dist.sharding<@mesh, [{dims}], []>}}")
    for name, size in SIZES.items():
        body = re.sub(rf"\b{name}\b", _type(size), body)
    text = STEP.format(arguments=", ".join(given), body=body, result=_type(SIZES[result]))
    module = ir.Module.parse(text)
    run(module, build("dist-pad"))
    assert "dist.padded" in str(module)
    return module


def _type(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> str:
    return str(write_type(TensorType(shape, dtype)))


def _result(module: ir.Module, **arguments: tuple[Tensor, int | None]) -> Tensor:
    """What a padded program makes of arguments with zeros in their padding."""
    values = [[t if cut is None else _with_padding(t, cut)] for t, cut in arguments.values()]
    ((result,),) = execute(module, values)
    return result


def _with_padding(value: Tensor, dim: int) -> Tensor:
    after = value.dim() - 1 - dim
    return F.pad(value, (0, 0) * after + (0, value.shape[dim] % 2))


def _filled(module: ir.Module) -> Sequence[str]:
    """The shapes of what is masked."""
    return re.findall(r"where\.ScalarOther.* -> !torch\.vtensor<\[([\d,]+)\]", str(module))


PRODUCT = "%out = torch.aten.mm %t, %z : XT, Z -> W"


def test_padding_behind_a_call_that_is_infinite_at_zero_is_filled() -> None:
    """1 / 0 times the zeros of the other factor is no zero."""
    body = f"""
      %y = torch.aten.reciprocal %x : X -> X
      %t = torch.aten.t %y : X -> XT
      {PRODUCT}
    """
    x, z = sample(3, 5).abs() + 1, sample(3, 2, seed=1)
    given = {"x": (x, 0), "z": (z, 0)}
    torch.testing.assert_close(_result(_padded(body, "W", **given), **given), (1 / x).T @ z)


def test_padding_that_may_overflow_is_filled() -> None:
    """exp(0 + 100) is infinite in float64, exp(-100 + 100) is not."""
    body = f"""
      %s = torch.aten.add.Scalar %x, %int1000, %int1 : X, !torch.int, !torch.int -> X
      %y = torch.aten.exp %s : X -> X
      %t = torch.aten.t %y : X -> XT
      {PRODUCT}
    """
    x, z = sample(3, 5) - 1000, sample(3, 2, seed=1)
    given = {"x": (x, 0), "z": (z, 0)}
    torch.testing.assert_close(_result(_padded(body, "W", **given), **given), (x + 1000).exp().T @ z)


def test_indices_in_padding_point_at_something() -> None:
    """3 - 1 = 2 and so on, but 0 - 1 points nowhere."""
    body = """
      %i = torch.aten.sub.Scalar %ids, %int1, %int1 : I, !torch.int, !torch.int -> I
      %out = torch.aten.embedding %table, %i, %int0, %false, %false : V2, I, !torch.int, !torch.bool, !torch.bool -> X
    """.replace("V2", "!torch.vtensor<[7,5],f64>").replace("I", "!torch.vtensor<[3],si64>")  # noqa: E501
    ids, table = torch.tensor([3, 1, 7]), sample(7, 5)
    given = {"ids": (ids, 0), "table": (table, None)}
    assert torch.equal(_result(_padded(body, "X", **given), **given), table[ids - 1])


def test_a_log_softmax_has_no_class_in_padding() -> None:
    """Its classes there have a logarithm of minus infinity, which a sum over classes must not see."""
    body = """
      %y = torch.aten._log_softmax %x, %int0, %false : X, !torch.int, !torch.bool -> X
      %out = torch.aten.sum.dim_IntList %y, %rows, %false, %none : X, !torch.list<int>, !torch.bool, !torch.none -> V
    """  # noqa: E501
    given = {"x": (x := sample(3, 5), 0)}
    found = _result(_padded(body, "V", **given), **given)
    torch.testing.assert_close(found, x.log_softmax(0).sum(0))


def test_a_sum_is_zero_where_all_its_terms_are() -> None:
    body = """
      %s = torch.aten.add.Scalar %x, %int1, %int1 : X, !torch.int, !torch.int -> X
      %y = torch.aten.add.Tensor %x, %s, %int1 : X, X, !torch.int -> X
      %out = torch.aten.sum.dim_IntList %y, %rows, %false, %none : X, !torch.list<int>, !torch.bool, !torch.none -> V
    """  # noqa: E501
    given = {"x": (x := sample(3, 5), 0)}
    torch.testing.assert_close(_result(_padded(body, "V", **given), **given), (2 * x + 1).sum(0))


def test_zeros_in_one_factor_hide_the_padding_of_the_other() -> None:
    """And what no sum reads is not filled at all."""
    body = f"""
      %y = torch.aten.add.Scalar %x, %int1, %int1 : X, !torch.int, !torch.int -> X
      %t = torch.aten.t %y : X -> XT
      {PRODUCT}
    """
    x, z = sample(3, 5), sample(3, 2, seed=1)
    given = {"x": (x, 0), "z": (z, 0)}
    module = _padded(body, "W", **given)
    assert not _filled(module)
    torch.testing.assert_close(_result(module, **given), (x + 1).T @ z)


def test_a_gradient_is_filled_where_it_spreads_over_rows() -> None:
    """A number a row is masked, not what the gradient is multiplied with."""
    body = """
      %g = torch.aten.expand %s, %column, %false {dist.phase = "backward"} : S, !torch.list<int>, !torch.bool -> C
      %y = torch.aten.add.Scalar %x, %int1, %int1 : X, !torch.int, !torch.int -> X
      %m = torch.aten.mul.Tensor %g, %y {dist.phase = "backward"} : C, X -> X
      %out = torch.aten.sum.dim_IntList %m, %rows, %false, %none {dist.phase = "backward"} : X, !torch.list<int>, !torch.bool, !torch.none -> V
    """  # noqa: E501
    x, s = sample(3, 5), sample(1, 1, seed=1)
    given = {"x": (x, 0), "s": (s, None)}
    module = _padded(body, "V", **given)
    assert _filled(module) == ["4,1"]
    torch.testing.assert_close(_result(module, **given), (s * (x + 1)).sum(0))
