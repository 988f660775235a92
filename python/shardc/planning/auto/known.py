"""What searches inside of choices found, for searches of the same step with other memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from shardc.passes.search.choose import Found, Unfit
from shardc.planning.candidates import Candidate

Find = Callable[[Candidate, float], Found | Unfit]


@dataclass
class Known:
    """Answers of ``find`` by candidate and by the memory that it could count on.

    ``capacity_bytes``: of a device. ``is_ended``: whether somebody ended the search, so that an answer is not
    what a whole search finds.
    """

    find: Find
    capacity_bytes: float
    is_ended: Callable[[], bool]
    answers: dict[str, list[tuple[float, Found | Unfit]]] = field(default_factory=dict)

    def __call__(self, candidate: Candidate, cutoff_s: float) -> Found | Unfit:
        """What is known to hold for a candidate, or is found now."""
        answers = self.answers.setdefault(replace(candidate, room=1.0).text, [])
        for room, answer in answers:
            known = self._carried(answer, room, candidate.room, cutoff_s)
            if known is not None:
                return known
        answer = self.find(candidate, cutoff_s)
        if not self.is_ended():
            answers.append((candidate.room, answer))
        return answer

    def _carried(
        self, answer: Found | Unfit, room: float, asked: float, cutoff_s: float
    ) -> Found | Unfit | None:
        """What an answer with the memory ``room`` says of that with ``asked``.

        With less memory no choice gets cheaper: bounds hold, and so does what was found if it still fits.
        With more, what was found stays the best if memory had not made it dearer.
        """
        is_less = asked <= room
        if isinstance(answer, Unfit):
            return answer if is_less and answer.bound_s >= cutoff_s else None
        if answer.held_bytes <= asked * self.capacity_bytes and (is_less or not answer.solution.is_tight):
            return answer
        if is_less and cutoff_s < inf and answer.solution.bound_s >= cutoff_s:
            return Unfit(0.0, answer.floor_s, answer.solution.bound_s)
        return None
