"""Records calls of modules whose nodes a later pass must distinguish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shardc.frontend.importing.module_calls import ModuleCalls
from shardc.frontend.importing.recorder import FORWARD, NodeRecorder
from shardc.frontend.step.fold.layers import Quiet


@contextmanager
def noting(calls: ModuleCalls, recorder: NodeRecorder) -> Iterator[None]:
    """Record forward calls of the modules in ``calls`` inside the block, by changing their classes."""
    original = [(module, type(module)) for module in calls.noted]
    made: dict[type, type] = {}
    try:
        for module, kind in original:
            if kind not in made:
                held = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
                held |= {"__doc__": kind.__doc__, "_noting": (calls, recorder)}
                made[kind] = type(kind.__name__, (_Noted, kind), held)
            object.__setattr__(module, "__class__", made[kind])  # bypasses the module's own __setattr__
        yield
    finally:
        for module, kind in original:
            object.__setattr__(module, "__class__", kind)


class _Noted(Quiet):
    """First base of a noted module's class."""

    _noting: tuple[ModuleCalls, NodeRecorder]

    def __call__(self, *args: object, **kwargs: object) -> object:
        module: Any = self
        calls, recorder = self._noting
        if recorder.phase != FORWARD:  # recomputation by a checkpoint
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        with calls.call(module):
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
