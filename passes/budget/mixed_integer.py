"""Mixed-integer programs, solved by HiGHS (Huangfu and Hall 2018), with the same result on all machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import highspy
import numpy as np

Row = dict[int, float]
"""Variable -> coefficient."""
NODES = 100
"""Limit of nodes of the search tree. A time limit would make results depend on the machine."""
GAP = 1e-2
"""Allowed relative gap between a solution's cost and the least cost."""


def solve(
    cost: np.ndarray,
    upper: np.ndarray,
    integral: Sequence[int],
    rows: Sequence[tuple[Mapping[int, float], float]],
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Return values of variables in ``[0, upper]`` with the least ``cost``; those in ``integral`` are
    integers.

    Each row of ``rows``, coefficients by variable, must be at least its number. The program must be feasible.
    ``start`` is a solution, which is returned if the search ends before it finds a better one.
    """
    count = len(cost)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = count, len(rows)
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, np.zeros(count), upper
    program.row_lower_ = np.array([least for _, least in rows])
    program.row_upper_ = np.full(len(rows), highspy.kHighsInf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _ in rows)])
    program.a_matrix_.index_ = np.array([variable for row, _ in rows for variable in row], dtype=np.int32)
    program.a_matrix_.value_ = np.array([factor for row, _ in rows for factor in row.values()])
    kinds = [highspy.HighsVarType.kContinuous] * count
    for variable in integral:
        kinds[variable] = highspy.HighsVarType.kInteger
    program.integrality_ = kinds
    highs = highspy.Highs()
    for option, value in {
        "output_flag": False,
        "threads": 1,
        "mip_max_nodes": NODES,
        "mip_rel_gap": GAP,
    }.items():
        highs.setOptionValue(option, value)
    highs.passModel(program)
    if start is not None:
        known = highspy.HighsSolution()
        known.col_value = list(start)
        highs.setSolution(known)
    highs.run()
    found = highs.getSolution()
    if not found.value_valid and start is not None:
        return start
    assert found.value_valid, highs.modelStatusToString(highs.getModelStatus())
    return np.array(found.col_value)
