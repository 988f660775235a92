"""Rules of factorizations, inverses and solvers: batch dims may be split, matrices stay whole."""

from __future__ import annotations

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.pointwise import Factors, broadcast
from shardc.dialects.rules.rule import Dims, Rule, rule_for

SIDES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "aten.linalg_cholesky_ex": ((2,), (2, 0)),
    "aten.linalg_inv_ex": ((2,), (2, 0)),
    "aten.linalg_lu_factor_ex": ((2,), (2, 1, 0)),
    "aten.linalg_lu_solve": ((2, 1, 2), (2,)),
    "aten._linalg_solve_ex": ((2, 2), (2, 2, 1, 0)),
}
"""Number of dims of each operand and result that belong to a matrix, a vector of pivots, or an error code."""


SOLVERS = ("aten.linalg_lu_solve", "aten._linalg_solve_ex")
"""Operators whose last operand is a right-hand side with the shape of the first result."""


@rule_for(*SIDES)
def of_matrices(call: OpCall) -> Rule:
    """Rule ([a,b,c],[a,d,k])->([a,e,k]) replicate={b,c,d,e}.

    A right-hand side has columns, or is a vector ([a,d]). If it has no batch, all matrices share it.
    """
    given, made = SIDES[call.target]
    if call.target == "aten._linalg_solve_ex" and _is_vector(*call.tensors):
        given, made = (2, 1), (1, 2, 1, 0)
    factors = Factors()
    results = list(zip(call.results, made, strict=True))
    shape = max((t.shape[: len(t.shape) - sides] for t, sides in results if t is not None), key=len)
    batch = factors.shape(shape)
    is_solver = call.target in SOLVERS
    columns = factors.shape(call.tensors[-1].shape[-1:]) if is_solver and given[-1] == 2 else ()

    def dims(tensor: TensorType | None, sides: int, columns: Dims) -> Dims:
        if tensor is None:
            return ()
        own, end = len(tensor.shape) - sides, len(tensor.shape) - len(columns)
        rows = map(factors.whole, tensor.shape[own:end])
        return (*broadcast(batch, shape, tensor.shape[:own]), *rows, *columns)

    last = len(given) - 1
    operands = [
        dims(tensor, sides, columns if number == last else ())
        for number, (tensor, sides) in enumerate(zip(call.tensors, given, strict=True))
    ]
    sides_made = [
        dims(tensor, sides, () if number else columns) for number, (tensor, sides) in enumerate(results)
    ]
    linear = ((last,),) if call.target == "aten.linalg_lu_solve" else ()
    return factors.rule(call, operands, sides_made, linear)


def _is_vector(matrix: TensorType, other: TensorType) -> bool:
    """Return whether ``torch.linalg.solve`` reads the right-hand side as vectors."""
    return len(other.shape) == 1 or other.shape == matrix.shape[:-1]
