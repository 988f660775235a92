"""Rules of reductions: sums and extrema have partial results, others keep reduced dims whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.rules.pointwise import FIRST, Factors, Sets, results_of
from shardc.dialects.rules.rule import Local, Rule, rule_for


def reduce_dims(call: OpCall, kind: str | None, sets: Sets = ()) -> Rule:
    """Rule of a reduction of the first operand over the call's ``dim`` (default: all dims).

    ``kind`` combines ranks' results: "sum", "max" or "min". If it is None, the reduced dims stay whole.
    """
    factors = Factors()
    operand = call.tensors[0]
    reduced = _reduced(call)
    dims = factors.shape(operand.shape)
    _combine(factors, [f for d in reduced for f in dims[d]], kind)
    kept = tuple(dim for d, dim in enumerate(dims) if d not in reduced)
    full = tuple(() if d in reduced else dim for d, dim in enumerate(dims))
    results = (full if len(r.shape) == len(full) else kept for r in results_of(call))
    return factors.rule(call, (dims,), results, sets)


def _combine(factors: Factors, reduced: Iterable[str], kind: str | None) -> None:
    """Mark factors as reduced by ``kind``, or as whole if it is None."""
    if kind is None:
        factors.replicate.update(reduced)
    else:
        factors.reduce.update(dict.fromkeys(reduced, kind))


def _reduced(call: OpCall) -> set[int]:
    """Return the reduced dims: all of them if ``dim`` is missing, None or empty."""
    rank = len(call.tensors[0].shape)
    dim = call["dim"] if any(name == "dim" for name, _, _ in parameters(call.target)) else None
    if dim is None or dim == () or rank == 0:
        return set(range(rank))
    return {d % rank for d in (dim if isinstance(dim, tuple) else (dim,))}


def _register(kind: str | None, sets: Sets, names: str, neutral: float | None = None) -> None:
    targets = (f"aten.{name}" for name in names.split())
    rule_for(*targets)(lambda call: _with_neutral(reduce_dims(call, kind, sets), neutral))


_register("sum", FIRST, "sum sum.dim_IntList")
_register("sum", (), "nansum count_nonzero count_nonzero.dim_IntList")  # not linear in the operand
_register("max", (), "amax max")
_register("min", (), "amin min")
_register("max", (), "any any.dim any.dims", 0.0)  # maximum and minimum of booleans
_register("min", (), "all all.dim all.dims", 1.0)
# Results of parts cannot be combined by a sum or an extremum.
_register(None, (), "aminmax argmax argmin max.dim min.dim median.dim mode prod prod.dim_int logsumexp")
_register(None, (), "std.correction std_mean.correction var.correction var_mean.correction")


@rule_for("aten.mean", "aten.mean.dim")
def mean(call: OpCall) -> Rule:
    """Rule of ``mean``: a rank's term is its mean, weighted by its share of elements: ([a,b])->([a])
    reduce={b}.
    """
    rule = reduce_dims(call, "sum", FIRST)
    return replace(rule, lower=partial(_mean_local, {f: rule.sizes[f] for f in rule.reduce}))


def _mean_local(reduced: Mapping[str, int], local: Local) -> Sequence[object]:
    made = local.emit(local.spec.target, *local.args)
    part = prod(local.size(f) / size for f, size in reduced.items())
    return [made if part == 1 else local.emit("aten.mul.Scalar", made, part)]


def _with_neutral(rule: Rule, number: float | None) -> Rule:
    if number is None:
        return rule
    return replace(rule, neutral={f: (number,) * len(rule.operands) for f in rule.reduce})


_NORM_KINDS = {inf: "max", -inf: "min", 1: "sum", 0: "sum"}


@rule_for("aten.linalg_vector_norm", "aten.norm.Scalar")
@rule_for("aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype")
def norm(call: OpCall) -> Rule:
    """Rule of norms. Orders 1, 0 and infinity are partial; others end in a root, so dims stay whole."""
    order = call["ord"] if call.target == "aten.linalg_vector_norm" else call["p"]
    kind = None if order is None else _NORM_KINDS.get(order)
    return _with_neutral(reduce_dims(call, kind), inf if kind == "min" else 0.0)  # of magnitudes


@rule_for("aten._foreach_norm.Scalar")
def foreach_norm(call: OpCall) -> Rule:
    """Rule of norms of a list of tensors: ([a],[b,c])->([],[]) replicate={a,b,c}."""
    factors = Factors()
    operands = [factors.shape(t.shape) for t in call.tensors]
    kind = _NORM_KINDS.get(call["ord"])
    _combine(factors, factors.sizes, kind)
    rule = factors.rule(call, operands, [()] * len(results_of(call)))
    return _with_neutral(rule, inf if kind == "min" else 0.0)
