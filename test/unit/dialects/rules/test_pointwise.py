"""Every pointwise operator that has a rule is proved, on operands that broadcast;
linear sets where they depend on arguments.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from shardc.dialects.aten.schema import overload
from shardc.dialects.rules.pointwise import Factors
from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import find_rule, load_rules

TARGETS = sorted(t for t, f in load_rules().items() if f.__module__.endswith(".pointwise"))
INTEGER = ("bitwise", "__", "gcd", "lcm")
SHAPES = ((4, 1, 6), (6,), (2, 1))
LIST_SHAPES = ((4,), (2, 3), ())
LIMITED = re.compile(
    r"aten\.(_foreach_)?(acos|asin|atanh|digamma|erfinv|fmod|hypot|lgamma|log|logit|polygamma|pow|remainder|rsqrt|sqrt|xlog|special)"
)
INT, BOOL, F32 = torch.int64, torch.bool, torch.float32


def inside(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers in (0.1, 0.9), for functions that are not defined on all numbers."""
    return 0.1 + 0.8 * torch.sigmoid(sample(*shape, seed=seed))


GIVEN: dict[str, tuple[Any, ...]] = {
    "aten.acosh": (inside(4, 6) + 1,),
    "aten.copy": (sample(4, 6), sample(6)),
    "aten.complex": (sample(4, 6), sample(6)),
    "aten._conj_physical": (sample(4, 6, dtype=torch.complex128),),
    "aten.conj_physical": (sample(4, 6, dtype=torch.complex128),),
    "aten.fill.Tensor": (sample(4, 6), sample()),
    "aten.glu": (sample(4, 6),),
    "aten.glu_backward": (sample(2, 6), sample(4, 6), 0),
    "aten.hardtanh_backward": (sample(4, 6), sample(4, 6, seed=1), -0.5, 0.5),
    "aten.real": (sample(4, 6, dtype=torch.complex128),),
    "aten.logical_not": (sample(4, 6, dtype=BOOL),),
    "aten.log_sigmoid_backward": (sample(4, 6), sample(4, 6), sample(4, 6)),
    "aten.logit_backward": (sample(4, 6), inside(4, 6), None),
    "aten.masked_fill.Scalar": (sample(4, 6), sample(4, 1, dtype=BOOL), 0),
    "aten.masked_fill.Tensor": (sample(4, 6), sample(6, dtype=BOOL), sample()),
    "aten.native_dropout_backward": (sample(4, 6), sample(4, 6, dtype=BOOL), 1.25),
    "aten.polygamma": (2, inside(4, 6)),
    "aten._prelu_kernel": (sample(4, 6), sample(4, 6, seed=1)),
    "aten._prelu_kernel_backward": (sample(4, 6), sample(4, 6, seed=1), sample(4, 6, seed=2)),
    "aten.round.decimals": (sample(4, 6), 1),
    "aten.where.self": (sample(4, 1, dtype=BOOL), sample(4, 6), sample(6)),
    "aten.where.ScalarOther": (sample(4, 1, dtype=BOOL), sample(4, 6), 0.0),
    "aten.where.ScalarSelf": (sample(4, 1, dtype=BOOL), 0.0, sample(4, 6)),
    "aten._to_copy": (sample(4, 6), F32),
    "aten.to.dtype": (sample(4, 6), F32),
    "prims.convert_element_type": (sample(4, 6), F32),
    "aten._foreach_addcmul.Tensor": (*([sample(4), sample(2, 3)],) * 3, sample(2)),
    "aten._foreach_addcdiv.Tensor": (*([sample(4), sample(2, 3)],) * 3, sample(2)),
    "aten._foreach_pow.ScalarAndTensor": (2.0, [sample(4), sample(2, 3)]),
}
# Operands whose shapes do not broadcast in these operators.
SAME_SHAPE = ("_backward", "lerp.Tensor")


def arguments(target: str) -> tuple[Any, ...]:
    """Sample arguments made from the operator's schema."""
    if target in GIVEN:
        return GIVEN[target]
    integer = target.split(".")[1].startswith(INTEGER)
    made: list[Any] = []
    for n, argument in enumerate(overload(target)._schema.arguments):
        kind = str(argument.real_type)
        if kind in ("Tensor", "Optional[Tensor]"):
            made.append(tensor(target, shape(target, n), n))
        elif kind == "List[Tensor]":
            made.append([tensor(target, shape, n) for shape in LIST_SHAPES])
        elif argument.has_default_value():
            made.append(argument.default_value)
        else:
            made.append(constant(kind, integer))
    if target.startswith("aten.clamp"):
        made[1:] = [0.4 * n if a is None else a for n, a in enumerate(made[1:], 1)]
    return tuple(made)


def shape(target: str, n: int) -> tuple[int, ...]:
    """Shapes that broadcast, where the operator allows it; a lone tensor beside lists is a scalar."""
    if "_foreach_" in target:
        return ()
    return (4, 6) if target.endswith(SAME_SHAPE) else SHAPES[n]


def tensor(target: str, size: tuple[int, ...], n: int) -> torch.Tensor:
    if target.split(".")[1].startswith(INTEGER):
        return sample(*size, dtype=INT, seed=n)
    return inside(*size, seed=n) if LIMITED.match(target) else sample(*size, seed=n)


def constant(kind: str, integer: bool) -> Any:
    if "List" in kind:
        return [0.5] * len(LIST_SHAPES)
    return {"number": 2 if integer else 0.5, "float": 0.5, "int": 2, "bool": False, "str": "floor"}[
        kind.removeprefix("Optional[").removesuffix("]")
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
def test_rule_is_proved(target: str) -> None:
    proof = prove(target, arguments(target))
    assert len(proof.cuts) > 1


@pytest.mark.parametrize(
    "target",
    [
        "aten.add.Tensor",
        "aten.mul.Tensor",
        "aten.eq.Tensor",
        "aten.where.self",
        "aten.remainder.Tensor",
        "aten.maximum",
    ],
)
def test_integers_and_booleans(target: str) -> None:
    args = (sample(4, 6, dtype=INT), 1 + sample(6, dtype=INT, seed=1))
    proof = prove(target, (sample(4, 1, dtype=BOOL), *args) if target == "aten.where.self" else args)
    assert proof.rule.linear == ()


EINSUMS = [
    ("aten.add.Tensor", (sample(4, 6), sample(6)), "([a,b],[b])->([a,b])", [{0, 1}]),
    ("aten.mul.Tensor", (sample(4, 6), sample()), "([a,b],[])->([a,b])", [{0}, {1}]),
    ("aten.mul.Tensor", (sample(4, 1), sample(2, 1, 3)), "([b,1],[a,1,c])->([a,b,c])", [{0}, {1}]),
    ("aten.mul.Tensor", (sample(4, dtype=INT), sample(4)), "([a],[a])->([a])", [{1}]),
    ("aten.add.Scalar", (sample(4), 1), "([a])->([a])", []),
    ("aten.div.Tensor", (sample(4), sample(4)), "([a],[a])->([a])", [{0}]),
    ("aten.addcmul", (sample(4),) * 3, "([a],[a],[a])->([a])", [{0, 1}, {0, 2}]),
    ("aten.masked_fill.Scalar", (sample(4), sample(4, dtype=BOOL), 0), "([a],[a])->([a])", [{0}]),
    ("aten.masked_fill.Scalar", (sample(4), sample(4, dtype=BOOL), -1.0), "([a],[a])->([a])", []),
    ("aten.where.ScalarSelf", (sample(4, dtype=BOOL), 1.0, sample(4)), "([a],[a])->([a])", []),
    ("aten._to_copy", (sample(4), INT), "([a])->([a])", []),
    ("aten.glu", (sample(4, 6),), "([a,b])->([a,c]) replicate={b,c}", []),
    (
        "aten._foreach_mul.List",
        ([sample(4), sample(2, 3)], [sample(4), sample(2, 3)]),
        "([a],[b,c],[a],[b,c])->([a],[b,c])",
        [{0, 1}, {2, 3}],
    ),
]


@pytest.mark.parametrize("target,args,einsum,linear", EINSUMS)
def test_einsum_and_linear_sets(
    target: str, args: tuple[Any, ...], einsum: str, linear: list[set[int]]
) -> None:
    rule = find_rule(call_of(target, args)[0])
    assert rule is not None and str(rule) == einsum
    assert list(rule.linear) == linear
    prove(target, args)


def test_factor_names_do_not_run_out() -> None:
    names = [f for dim in Factors().shape([2] * 60) for f in dim]
    assert len(set(names)) == 60 and names[:2] == ["a", "b"] and names[26] == "a1"
