"""Result of a comparison of two programs, as data and as a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import indent


@dataclass(frozen=True)
class Row:
    """Tensor at one step: its ``error``, as defined in the module ``tolerance``, and its ``bound``."""

    step: int
    role: str
    name: str
    error: float
    bound: float

    @property
    def tensor(self) -> str:
        """Name of the tensor, without the text on what was compared."""
        return self.name.partition(" (")[0]

    @property
    def ok(self) -> bool:
        return self.error <= self.bound

    @property
    def badness(self) -> float:
        """Ratio of the error to its bound."""
        if self.bound == 0:
            return 0.0 if self.error == 0 else float("inf")
        return self.error / self.bound


@dataclass
class Comparison:
    """Result of comparing a rank program with the global one.

    ``unobserved``: names (``grad:w``) of the global program that the rank program lost. They could not be
    compared, but values computed from them were. ``undefined``: True if the global program itself computed a
    NaN.
    """

    rows: list[Row] = field(default_factory=list)
    unobserved: list[str] = field(default_factory=list)
    undefined: bool = False

    @property
    def passed(self) -> bool:
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def failures(self) -> list[Row]:
        """Rows beyond their bound, worst first."""
        return [row for row in self._worst_first() if not row.ok]

    @property
    def first_failure(self) -> Row | None:
        """First failure in program order, which is nearest to its cause."""
        return next((row for row in self.rows if not row.ok), None)

    def render(self, limit: int = 20) -> str:
        """Return a verdict, and a table of the ``limit`` worst rows, worst first."""
        rows = self._worst_first()
        width = max([4, *(len(row.name) for row in rows[:limit])])
        lines = [self._verdict(), f"{'step':>4}  {'role':<10} {'name':<{width}}  {'error':>9}  {'bound':>9}"]
        for row in rows[:limit]:
            mark = "ok" if row.ok else "FAIL"
            text = f"{row.step:>4}  {row.role:<10} {row.name:<{width}}  {row.error:9.2e}  {row.bound:9.2e}"
            lines.append(f"{text}  {mark}")
        if len(rows) > limit:
            lines.append(f"      ... and {len(rows) - limit} with smaller errors")
        if self.unobserved:
            lines.append(f"not observed in the rank program: {', '.join(self.unobserved)}")
        return "\n".join(lines)

    def _verdict(self) -> str:
        first = self.first_failure
        if first is None:
            return f"equal: {len(self.rows)} comparisons" if self.rows else "NOT equal: nothing was compared"
        count = f"NOT equal: {len(self.failures)} of {len(self.rows)} comparisons fail"
        return f"{count}, the first in the program at {first.role} {first.name!r} of step {first.step}"

    def _worst_first(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: (row.ok, -row.badness, row.step, row.role, row.name))


@dataclass(frozen=True)
class Proof:
    """Comparison of a program with the single-device one: the result of ``step.check()``.

    ``exact``: comparison in f64, to 1e-9. ``own``: comparison in the program's own precision. ``others``: if
    the step has compiled several programs, the names and proofs of the others. ``passed``: True if all
    comparisons pass. Printing a proof shows both verdicts, and tables of the largest errors.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 2})
        >>> proof = step.check(steps=1)
        >>> proof.passed, str(proof).splitlines()[-1]
        (True, 'equal to the single-device program')
    """

    exact: Comparison
    own: Comparison
    of: str = ""
    """Text on what was compared, if not with the single-device program."""
    wanted: str = "the single-device program"
    """Short text on what the program was compared with."""
    others: tuple[tuple[str, Proof], ...] = ()

    @property
    def passed(self) -> bool:
        """True if every program is equal, in both precisions."""
        return self.exact.passed and self.own.passed and all(proof.passed for _, proof in self.others)

    def __str__(self) -> str:
        return f"{self.render()}\n\n{'equal' if self.passed else 'NOT equal'} to {self.wanted}"

    def render(self, limit: int = 8) -> str:
        """Return both verdicts as text, with tables of the ``limit`` worst rows."""
        lines = [self.of, ""] if self.of else []
        lines += ["in float64 (the proof)", indent(self.exact.render(limit), "  ")]
        lines += ["", "in the program's own precision", indent(self.own.render(limit), "  ")]
        for name, proof in self.others:
            lines += ["", f"the program of {name}", indent(proof.render(limit), "  ")]
        return "\n".join(lines)
