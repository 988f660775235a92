"""Base of all messages: a name, what happened, where, and how to fix it.

An error is a class whose docstring says when it is raised. Its ``template`` and ``hint`` have ``{fields}``
that the raiser fills in. The command line prints them without a traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

from shardc.runtime.report.messages import is_silenced, titled


class ShardcError(Exception):
    """Base of all compile errors that a user can cause. Subclasses set ``template`` and ``hint``.

    ``where`` is the user's source line (``file:line``), or the name of the file or argument at fault.
    ``exit_code`` is the command line's exit code: 2 for bad input, 1 for a failed check.

    Example:
        >>> try:
        ...     shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 2}, plan="dat")
        ... except shardc.ShardcError as error:
        ...     print(type(error).__name__)
        UnknownPreset
    """

    template: ClassVar[str] = "{message}"
    hint: ClassVar[str] = ""
    exit_code: ClassVar[int] = 2

    def __init__(self, *, where: str | None = None, **fields: object) -> None:
        self.where = where
        self.fields = fields
        super().__init__(self.render())

    def render(self) -> str:
        """Return the whole message: ``Name: what``, then the place and the hint, each on its own line."""
        lines = [f"{type(self).__name__}: {self.template.format(**self.fields)}"]
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.hint:
            lines.append(f"  try: {self.hint.format(**self.fields)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Remark:
    """A note to the user that is not an error, for example that an op had to be replicated."""

    name: str
    message: str
    where: str | None = None

    def render(self) -> str:
        return titled(self.name, self.message) + (f" (at {self.where})" if self.where else "")


class Remarks(list[Remark]):
    """The remarks of one compile, in order, without repetitions."""

    def add(self, name: str, message: str, where: str | None = None) -> None:
        remark = Remark(name, message, where)
        if remark not in self:
            self.append(remark)


_sink: ContextVar[Remarks | None] = ContextVar("shardc_remarks", default=None)


@contextmanager
def collect_remarks() -> Iterator[Remarks]:
    """Collect remarks made inside the block in the :class:`Remarks` that it yields."""
    remarks = Remarks()
    token = _sink.set(remarks)
    try:
        yield remarks
    finally:
        _sink.reset(token)


def remark(name: str, message: str, where: str | None = None) -> None:
    """Add a remark to the innermost :func:`collect_remarks`; drop it if there is none.

    ``name`` is its id, a key of :data:`shardc.diagnostics.catalogue.REMARKS`. ``SHARDC_SILENCE`` drops it.
    """
    sink = _sink.get()
    if sink is not None and not is_silenced(name):
        sink.add(name, message, where)
