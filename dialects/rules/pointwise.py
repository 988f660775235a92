"""Rules of pointwise ops: every dim of the result is a factor that all operands with this dim share.

Other families also use :class:`Factors`, which names the factors of a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Dims, Local, Lower, Rule, rule_for

Sets = tuple[tuple[int, ...], ...]
"""Linear sets, as numbers of tensor operands."""
FIRST: Sets = ((0,),)
"""The linear set of calls that are linear in their first operand."""


@dataclass
class Factors:
    """Factors of a rule under construction, named a, b, c, ... in order of first use."""

    sizes: dict[str, int] = field(default_factory=dict)
    replicate: set[str] = field(default_factory=set)
    reduce: dict[str, str] = field(default_factory=dict)

    def new(self, size: int) -> Dim:
        """Return a dim of one new factor; () for size 1."""
        if size == 1:
            return ()
        turn, letter = divmod(len(self.sizes), 26)
        name = chr(ord("a") + letter) + (str(turn) if turn else "")
        self.sizes[name] = size
        return (name,)

    def whole(self, size: int) -> Dim:
        """Return a dim of one new factor that must stay whole."""
        dim = self.new(size)
        self.replicate.update(dim)
        return dim

    def shape(self, shape: Iterable[int]) -> Dims:
        return tuple(self.new(size) for size in shape)

    def rule(
        self,
        call: OpCall,
        operands: Iterable[Dims],
        results: Iterable[Dims],
        sets: Iterable[tuple[int, ...]] = (),
        lower: Lower | None = None,
    ) -> Rule:
        """Return the call's rule, with those linear ``sets`` that hold for its dtypes."""
        replicate, linear = frozenset(self.replicate), tuple(map(frozenset, _linear_sets(call, sets)))
        return Rule(tuple(operands), tuple(results), self.sizes, self.reduce, replicate, linear, lower)


def results_of(call: OpCall | Local) -> tuple[TensorType, ...]:
    """Return the types of a call's results, without those that ``output_mask`` leaves out."""
    return tuple(r for r in call.results if r is not None)


def local_sizes(local: Local) -> Sequence[object]:
    """Call the operator with the local shape of its result, which is the argument after the tensors."""
    args, at = local.args, len(local.spec.tensors)
    return [local.emit(local.spec.target, *args[:at], results_of(local)[0].shape, *args[at + 1 :])]


def floating(type_: TensorType) -> bool:
    return type_.dtype.is_floating_point or type_.dtype.is_complex


def _linear_sets(call: OpCall, sets: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the ``sets`` that hold for the call's dtypes: only floating-point sums are kept partial.

    No set holds if a number replaces a tensor, because that changes the numbers of the operands.
    """
    if not all(map(floating, results_of(call))) or _number_for_tensor(call):
        return []
    return [s for s in sets if all(floating(call.tensors[i]) for i in s)]


def _number_for_tensor(call: OpCall) -> bool:
    kinds = (kind for _, kind, _ in parameters(call.target))
    return any(k == "Tensor" and not isinstance(a, TensorType) for a, k in zip(call.args, kinds, strict=True))


def broadcast(dims: Dims, whole: tuple[int, ...], shape: tuple[int, ...]) -> Dims:
    """Return the dims of an operand of ``shape`` that is broadcast to a tensor of shape ``whole`` with
    ``dims``.
    """
    start = len(dims) - len(shape)
    return tuple(dims[start + d] if size == whole[start + d] else () for d, size in enumerate(shape))


def pointwise(call: OpCall, sets: Iterable[tuple[int, ...]] = (), lower: Lower | None = None) -> Rule:
    """Rule of pointwise ops. Empty results (``log_sigmoid_forward`` on other devices than CPUs) have no
    factor.
    """
    factors = Factors()
    shape = results_of(call)[0].shape
    dims = factors.shape(shape)
    operands = (broadcast(dims, shape, t.shape) for t in call.tensors)
    results = (broadcast(dims, shape, r.shape) for r in results_of(call))
    return factors.rule(call, operands, results, sets, lower)


def aligned(call: OpCall, whole: Iterable[int] = (), sets: Sets = (), lower: Lower | None = None) -> Rule:
    """Rule of tensors with the rank of the first result. Dims whose sizes agree may be split.

    Other dims, those in ``whole``, and tensors of another rank (``cat`` allows empty ones) stay whole.
    """
    factors = Factors()
    rank = len(results_of(call)[0].shape)
    shapes = [t.shape for t in (*call.tensors, *results_of(call))]
    agreed = {d for d in range(rank) if len({s[d] for s in shapes if len(s) == rank}) == 1}
    agreed -= {d % rank for d in whole}
    common: dict[int, Dim] = {}

    def dim(d: int, size: int) -> Dim:
        if d in agreed and d not in common:
            common[d] = factors.new(size)
        return common[d] if d in agreed else factors.whole(size)

    def dims(shape: tuple[int, ...]) -> Dims:
        if len(shape) != rank:
            return tuple(factors.whole(size) for size in shape)
        return tuple(dim(d, size) for d, size in enumerate(shape))

    operands = [dims(t.shape) for t in call.tensors]
    return factors.rule(call, operands, [dims(r.shape) for r in results_of(call)], sets, lower)


def _register(sets: Sets, names: str) -> None:
    rule_for(*(f"aten.{name}" for name in names.split()))(lambda call: pointwise(call, sets))


_register(
    (),
    """
    abs acos acosh angle asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2
    expm1 floor frac i0 isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not logit nan_to_num polygamma
    reciprocal round round.decimals rsqrt sgn sigmoid sign signbit sin sinc sinh special_entr special_erfcx
    special_i0e special_i1 special_i1e special_log_ndtr special_ndtri sqrt square tan tanh trunc
    celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid_forward mish relu relu6 selu silu
    softplus softshrink threshold _prelu_kernel
    clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor
    add.Scalar sub.Scalar rsub.Scalar
    atan2 bitwise_and.Tensor bitwise_and.Scalar bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar
    bitwise_or.Tensor bitwise_or.Scalar bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_xor.Tensor
    bitwise_xor.Scalar __and__.Tensor __and__.Scalar __or__.Tensor __or__.Scalar __xor__.Tensor __xor__.Scalar
    __lshift__.Tensor __lshift__.Scalar __rshift__.Tensor __rshift__.Scalar
    copysign.Tensor copysign.Scalar div.Tensor_mode div.Scalar_mode eq.Tensor eq.Scalar floor_divide
    floor_divide.Scalar fmax fmin fmod.Tensor fmod.Scalar gcd ge.Tensor ge.Scalar gt.Tensor gt.Scalar heaviside hypot
    lcm le.Tensor le.Scalar logaddexp logaddexp2 logical_and logical_or logical_xor lt.Tensor lt.Scalar max.other maximum
    min.other minimum ne.Tensor ne.Scalar nextafter pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor
    remainder.Tensor remainder.Scalar remainder.Scalar_Tensor special_xlog1py xlogy.Tensor xlogy.Scalar_Other
    xlogy.Scalar_Self _standard_gamma_grad _dirichlet_grad
""",  # noqa: E501
)
# Linear in the only operand, or in the first of several: the output's gradient of a backward.
_register(
    FIRST,
    """
    neg positive real conj_physical _conj_physical polar deg2rad rad2deg mul.Scalar div.Scalar div.Tensor
    elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward
    log_sigmoid_backward logit_backward mish_backward native_dropout_backward sigmoid_backward silu_backward
    softplus_backward tanh_backward threshold_backward hardshrink_backward softshrink_backward _prelu_kernel_backward
    alias clone contiguous detach lift_fresh_copy lift_fresh _to_copy to.dtype
""",  # noqa: E501
)
_register(((0, 1),), "add.Tensor sub.Tensor rsub.Tensor complex lerp.Scalar lerp.Tensor addcdiv")
_register(((0,), (1,)), "mul.Tensor")
_register(((0, 1), (0, 2)), "addcmul")
_register(((1, 2),), "where.self")
_register(((0, 2),), "masked_fill.Tensor")
_register(((1,),), "copy fill.Tensor")


rule_for("shardc.flat_index")(pointwise)
rule_for("prims.convert_element_type", "shardc.constrain")(lambda call: pointwise(call, FIRST))


@rule_for("aten.where.ScalarOther", "aten.where.ScalarSelf")
def where_scalar(call: OpCall) -> Rule:
    """Rule of ``where`` with a scalar: linear in the tensor if the scalar is 0."""
    scalar = call["other"] if call.target.endswith("Other") else call["self"]
    return pointwise(call, ((1,),) if scalar == 0 else ())


@rule_for("aten.masked_fill.Scalar")
def masked_fill(call: OpCall) -> Rule:
    return pointwise(call, FIRST if call["value"] == 0 else ())


@rule_for("aten.glu", "aten.glu_backward")
def glu(call: OpCall) -> Rule:
    """Rule of ``glu``; the dim that is halved stays whole: ([a,b])->([a,c]) replicate={b,c}."""
    return aligned(call, whole=(call["dim"],), sets=FIRST if call.target == "aten.glu_backward" else ())


# The foreach ops: a linear set names arguments that are lists of tensors, which are partial together.
_FOREACH: dict[Sets, str] = {
    (): """abs acos asin atan ceil clamp_max.List clamp_max.Scalar clamp_max.ScalarList clamp_min.List clamp_min.Scalar
        clamp_min.ScalarList cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 maximum.List
        maximum.Scalar maximum.ScalarList minimum.List minimum.Scalar minimum.ScalarList pow.List pow.Scalar
        pow.ScalarList pow.ScalarAndTensor reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc add.Scalar add.ScalarList
        add.Tensor sub.Scalar sub.ScalarList""",  # noqa: E501
    FIRST: "neg mul.Scalar mul.ScalarList mul.Tensor div.Scalar div.ScalarList div.Tensor div.List",
    ((0, 1),): "add.List sub.List lerp.List lerp.Scalar addcdiv.Scalar addcdiv.ScalarList addcdiv.Tensor",
    ((0,), (1,)): "mul.List",
    ((0, 1), (0, 2)): "addcmul.Scalar addcmul.ScalarList addcmul.Tensor",
    ((1,),): "copy",
}


def foreach(call: OpCall, sets: Sets) -> Rule:
    """Rule of foreach ops: each index of the lists has its own factors. A single tensor is a scalar."""
    factors = Factors()
    dims = [factors.shape(r.shape) for r in results_of(call)]
    operands: list[Dims] = []
    members: list[range] = []
    for arg in call.args:
        if isinstance(arg, TensorType):
            operands.append(tuple(factors.whole(size) for size in arg.shape))
        elif isinstance(arg, tuple) and arg and isinstance(arg[0], TensorType):
            members.append(range(len(operands), len(operands) + len(arg)))
            places = zip(dims, results_of(call), arg, strict=True)
            operands += (broadcast(d, r.shape, t.shape) for d, r, t in places)
    return factors.rule(call, operands, dims, [tuple(i for arg in s for i in members[arg]) for s in sets])


for _sets, _names in _FOREACH.items():
    _targets = (f"aten._foreach_{name}" for name in _names.split())
    rule_for(*_targets)(partial(foreach, sets=_sets))
