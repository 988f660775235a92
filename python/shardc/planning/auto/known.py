"""Memo of inner searches, which also serves searches of the same step with other memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from shardc.passes.search.choose import Found, Unfit
from shardc.planning.candidates import Candidate

Find = Callable[[Candidate, float], Found | Unfit]


@dataclass
class Known:
    """Answers of ``find`` by candidate and by the memory that the search had.

    ``capacity_bytes``: memory of a device. ``is_ended``: returns True if the user ended the search; its
    answer is then not that of a complete search, and is not kept.
    """

    find: Find
    capacity_bytes: float
    is_ended: Callable[[], bool]
    answers: dict[str, list[tuple[float, Found | Unfit]]] = field(default_factory=dict)

    def __call__(self, candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        """Return the answer for a candidate: from the memo, if one still holds, or of a new search."""
        known = self.known(candidate, cutoff_s)
        if known is not None:
            return known
        answer = self.find(candidate, cutoff_s)
        self.keep(candidate, answer)
        return answer

    def keep(self, candidate: Candidate, answer: Found | Unfit) -> None:
        """Keep the answer of ``find`` for a candidate, unless the user ended the search."""
        if not self.is_ended():
            self._answers(candidate).append((candidate.room, answer))

    def known(self, candidate: Candidate, cutoff_s: float) -> Found | Unfit | None:
        """Return the answer for a candidate from the memo; None if a search has to find it."""
        found = (self._carried(of, room, candidate.room, cutoff_s) for room, of in self._answers(candidate))
        return next((answer for answer in found if answer is not None), None)

    def _answers(self, candidate: Candidate) -> list[tuple[float, Found | Unfit]]:
        return self.answers.setdefault(replace(candidate, room=1.0).text, [])

    def _carried(
        self, answer: Found | Unfit, room: float, asked: float, cutoff_s: float
    ) -> Found | Unfit | None:
        """Return the answer for the memory ``asked``, derived from one for ``room``; None if it does not
        follow.

        With less memory no choice gets cheaper. So bounds stay valid, and a result stays the best if it still
        fits. With more memory a result stays the best if memory had not limited it.
        """
        is_less = asked <= room
        if isinstance(answer, Unfit):
            return answer if is_less and answer.bound_s >= cutoff_s else None
        if answer.held_bytes <= asked * self.capacity_bytes and (is_less or not answer.solution.is_tight):
            return answer
        if is_less and cutoff_s < inf and answer.solution.bound_s >= cutoff_s:
            solution = answer.solution
            bound_s, free_s, weights_s = solution.bound_s, solution.free_s, answer.floor_weights_s
            return Unfit(0.0, answer.floor_s, bound_s, "", free_s, weights_s, answer.kept)
        return None
