"""What every message of shardc is made of: a name, what happened, where, and what to do about it.

An error is a class with a docstring that says when it is raised, and a ``template`` and a ``hint`` whose
``{fields}`` the raiser fills in. The command line prints these without a traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

from shardc.runtime.report.messages import is_silenced, titled


class ShardcError(Exception):
    """Base of every error of compiling that a user can cause. Subclasses set ``template`` and ``hint``.

    ``where`` is the user's source line (``file:line``) or the name of the file or argument at fault.
    ``exit_code`` is what the command line exits with: 2 for bad input, 1 for a check that failed.

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
        """The whole message: ``Name: what`` and, each on its own line, where it is and what to do."""
        lines = [f"{type(self).__name__}: {self.template.format(**self.fields)}"]
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.hint:
            lines.append(f"  try: {self.hint.format(**self.fields)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Remark:
    """Something the user should know of that is not an error, such as an op that had to be replicated."""

    name: str
    message: str
    where: str | None = None

    def render(self) -> str:
        return titled(self.name, self.message) + (f" (at {self.where})" if self.where else "")


class Remarks(list[Remark]):
    """The remarks of one compile, in order, each said once."""

    def add(self, name: str, message: str, where: str | None = None) -> None:
        remark = Remark(name, message, where)
        if remark not in self:
            self.append(remark)


_sink: ContextVar[Remarks | None] = ContextVar("shardc_remarks", default=None)


@contextmanager
def collect_remarks() -> Iterator[Remarks]:
    """Remarks made inside the block are gathered in the :class:`Remarks` that it gives."""
    remarks = Remarks()
    token = _sink.set(remarks)
    try:
        yield remarks
    finally:
        _sink.reset(token)


def remark(name: str, message: str, where: str | None = None) -> None:
    """Tell the user something; kept by the innermost :func:`collect_remarks`, dropped if there is none.

    ``name`` is its id, a line of :data:`shardc.diagnostics.catalogue.REMARKS`; ``SHARDC_SILENCE`` drops it.
    """
    sink = _sink.get()
    if sink is not None and not is_silenced(name):
        sink.add(name, message, where)
