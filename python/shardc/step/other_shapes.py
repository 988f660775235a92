"""Programs of a step for batches of other shapes: one for each shape, with the same state and plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from shardc.diagnostics.api import BadBucket, ShapeNotCompiled, TooManyShapes
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.frontend import BatchUnsupported
from shardc.frontend.importing.recorder import caller_line
from shardc.frontend.step.batch import flatten_batch, in_form_of
from shardc.frontend.step.hooks import line_of_code
from shardc.options.shapes import Shapes
from shardc.runtime.errors import BatchMismatch
from shardc.runtime.report.messages import ProgramCompiledWarning, warn_at
from shardc.runtime.same_batch import shapes_of
from shardc.runtime.step import TrainStep


class Runs(Protocol):
    """A compiled step."""

    @property
    def running(self) -> TrainStep: ...


S = TypeVar("S", bound=Runs)


class OtherShapes(Generic[S]):
    """Steps for batches of other shapes than the example's, by the shapes and constants of their batches.

    ``compile_for`` compiles a step for a batch. ``check`` runs before it, and raises if the model is no
    longer what the first program was compiled from.
    """

    def __init__(
        self,
        options: Shapes,
        example: object,
        compile_for: Callable[[object], S],
        check: Callable[[], None],
    ) -> None:
        self._options, self._compile_for, self._check = options, compile_for, check
        self._like = flatten_batch(example)[1].like
        self._own, values = _described(example)
        self._dtypes = {name: value.dtype for name, value in values.items()}
        self._steps: dict[str, S] = {}

    def prepared(self, batch: object) -> object:
        """Return the batch padded to its bucket. Raises BadBucket."""
        return bucketed(batch, self._options.bucket)

    def find(
        self, batch: object, mismatch: BatchMismatch
    ) -> tuple[dict[str, Tensor], Callable[[], TrainStep]]:
        """Return a batch's tensors, and a function that returns the running step for it.

        Raises ``mismatch`` if the batch is not like the example.
        """
        known = in_form_of(batch, self._like)
        if known is None:
            raise mismatch
        try:
            _, values = _described(known)
        except BatchUnsupported:
            raise mismatch from None
        if {name: value.dtype for name, value in values.items()} != self._dtypes:
            raise mismatch
        if any(value.is_meta for value in values.values()):
            raise mismatch
        return values, lambda: self._step(known).running

    @property
    def made(self) -> Mapping[str, S]:
        """Steps compiled so far, by the shapes and constants of their batches."""
        return self._steps

    def step_for(self, batch: object) -> S | None:
        """Return the step for a batch; None if it has the example's shapes. Raises BatchUnsupported."""
        known = in_form_of(self.prepared(batch), self._like)
        if known is None:
            raise BatchUnsupported(reason="its structure differs from the example batch's", where=_line())
        return None if _described(known)[0] == self._own else self._step(known)

    def _step(self, batch: object) -> S:
        """Return the step for a batch, compiled if needed.

        Raises TooManyShapes, ShapeNotCompiled, ModelChanged.
        """
        shape, _ = _described(batch)
        if shape not in self._steps:
            count, limit = len(self._steps) + 2, self._options.shapes_limit
            if count > limit:
                seen = "; ".join([self._own, *self._steps])
                raise TooManyShapes(
                    shape=f"batch {shape}", count=count, limit=limit, seen=seen, where=_line()
                )
            self._check()
            started = time.perf_counter()
            self._steps[shape] = self._compiled(shape, batch)
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"compiled program {count} of at most {limit}, for batch {shape}: {took}"
            warn_at("ShapeCompiled", text, ProgramCompiledWarning, caller_line()[0])
        return self._steps[shape]

    def _compiled(self, shape: str, batch: object) -> S:
        try:
            return self._compile_for(batch)
        except ShardcError as error:
            reason = error.render().splitlines()[0]
            raise ShapeNotCompiled(shape=shape, reason=reason, where=_line()) from error


def bucketed(batch: object, bucket: Callable[[object], object] | None) -> object:
    """Return ``bucket(batch)``. Raises BadBucket if the function raises, or returns no batch."""
    if bucket is None:
        return batch
    name, where = getattr(bucket, "__name__", type(bucket).__name__), line_of_code(bucket) or _line()
    try:
        made = bucket(batch)
    except Exception as error:
        raise BadBucket(name=name, problem=f"raised {type(error).__name__}: {error}", where=where) from error
    try:
        flatten_batch(made)
    except BatchUnsupported as error:
        problem = f"returned a {type(made).__name__}, which is not a batch: {error.fields['reason']}"
        raise BadBucket(name=name, problem=problem, where=where) from None
    return made


def _described(batch: object) -> tuple[str, dict[str, Tensor]]:
    """Return the shapes, dtypes and constants of a batch as text, and its tensors."""
    tensors, tree = flatten_batch(batch)
    values = dict(zip(tree.names, tensors, strict=True))
    constants = "".join(f", {value!r}" for value in tree.constants.values())
    return shapes_of(values) + constants, values


def _line() -> str:
    file, line = caller_line()[0]
    return f"{file}:{line}"
