"""Rows of a linear program for HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import highspy
import numpy as np


@dataclass
class Rows:
    """Linear constraints as sparse rows: ``starts`` has the position of each row's first variable."""

    variables: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.least)

    def equal(self, plus: Sequence[int], minus: Sequence[int], total: float) -> None:
        """Add the constraint ``sum(plus) - sum(minus) == total``."""
        self._add([*plus, *minus], [1.0] * len(plus) + [-1.0] * len(minus), total, total)

    def at_most(self, variables: Sequence[int], factors: Sequence[float], most: float) -> None:
        """Add the constraint ``sum(factors * variables) <= most``."""
        self._add(variables, factors, -inf, most)

    def program(self, variables: int) -> highspy.HighsLp:
        """Return a program with these rows, for ``variables`` variables without costs and bounds."""
        made = highspy.HighsLp()
        made.num_col_, made.num_row_ = variables, len(self)
        made.row_lower_, made.row_upper_ = np.array(self.least), np.array(self.most)
        made.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        made.a_matrix_.start_ = np.array(self.starts)
        made.a_matrix_.index_ = np.array(self.variables, dtype=np.int32)
        made.a_matrix_.value_ = np.array(self.factors)
        return made

    def _add(self, variables: Sequence[int], factors: Sequence[float], least: float, most: float) -> None:
        self.variables += variables
        self.factors += factors
        self.starts.append(len(self.variables))
        self.least.append(least)
        self.most.append(most)
