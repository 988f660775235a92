"""Check, in a program's first run, that each ATen call returns what the compiler predicted.

The compiler uses the types that PyTorch's fake tensors predict. The program has them in a comment after each
call:

    out_0, mean_0, _ = native_layer_norm(x, [8], weight, bias, 1e-05)  # bfloat16[4, 8], float32[4, 1], None

Later kernels would misread a result of another dtype or shape, and would overwrite a result that unexpectedly
shares memory. The check reads no values, and removes itself from the program when each line has run once. So
later runs cost nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from .check import Json
from .errors import ResultMismatch
from .report.messages import ShardcWarning, warn
from .source import line_of, place_above
from .torch_private import DispatchKey, OpOverload, schema_of, storage_address

HINT = (
    "the fake implementation of this operator is wrong: correct it if it is yours "
    "(torch.library.register_fake), else report it; with fuse=False calls accept such results, "
    "and this is only a warning"
)
_UNDECLARED = ("aten::_unsafe_view", "aten::_reshape_alias", "_c10d_functional::wait_tensor")
"""Operators whose result may be their operand, although their schemas do not declare it."""

_TYPE = re.compile(r"(\w+)\[([\d?, ]*)(?:; ([\d, ]*))?\]|None")
_CALL = re.compile(rf" = \w+\(.*\)  # ((?:{_TYPE.pattern})(?:, (?:{_TYPE.pattern}))*)$")

Type = tuple[tuple[int | None, ...], torch.dtype, tuple[int, ...] | None]
"""Shape, dtype and strides. None stands for a size that differs between calls, and for any strides."""


class ResultMismatchWarning(ShardcWarning):
    """A :class:`ResultMismatch` that makes no number wrong: in strides, or in a program without kernels."""


class FirstRun:
    """Check of each call of the program ``text``, once.

    ``names``: the program's globals. ``ops``: the operators among them. A mismatch raises ResultMismatch if
    ``strict``, otherwise it is a warning.
    """

    def __init__(self, text: str, names: Json, ops: Mapping[str, OpOverload], strict: bool) -> None:
        self._text, self._names, self._strict = text, names, strict
        self._functions = {name: names[name] for name in ops}
        self._left: dict[int, list[Type | None]] | None = None
        names.update({name: self._checked(op, names[name]) for name, op in ops.items()})

    def end(self) -> None:
        """Remove all checks from the program."""
        self._names.update(self._functions)
        self._text, self._left, self._functions = "", {}, {}

    def _checked(self, op: OpOverload, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            made = function(*args, **kwargs)
            self._see(op, line_of(sys._getframe(1)), made, (*args, *kwargs.values()))
            return made

        return call

    def _see(self, op: OpOverload, number: int, made: object, args: Sequence[object]) -> None:
        if self._left is None:
            self._left = _expected(self._text)
        if number in self._left:
            self._compare(op, number, made, self._left[number], args)
            self._left.pop(number, None)  # another thread may have removed it
        if not self._left:
            self.end()

    def _compare(
        self, op: OpOverload, number: int, made: object, expected: list[Type | None], args: Sequence[object]
    ) -> None:
        results = made if isinstance(made, tuple | list) else (made,)
        problem = _difference(results, expected) or (None if may_share(op) else _shared(results, args))
        is_harmless = problem is None  # kernels read the strides of their operands
        problem = problem or _laid_otherwise(results, expected)
        if problem is None:
            return
        place = place_above(self._text.splitlines(), number - 1) or f"line {number} of the program"
        error = ResultMismatch(f"{op} returned {problem}", place, HINT)
        if self._strict and not is_harmless:
            raise error
        warn("ResultMismatch", str(error), ResultMismatchWarning, 4)


def called_operators(names: Mapping[str, object]) -> dict[str, OpOverload]:
    """Return the operators among a program's globals."""
    return {name: value for name, value in names.items() if isinstance(value, OpOverload)}


def type_text(shape: Sequence[int | None], dtype: torch.dtype, strides: Sequence[int] | None = None) -> str:
    """Format a shape, dtype and strides as in programs: ``float32[4, ?]``, ``float32[4, 5; 1, 4]``."""
    sizes = ", ".join("?" if n is None else str(n) for n in shape)
    more = "" if strides is None else f"; {', '.join(map(str, strides))}"
    return f"{str(dtype).removeprefix('torch.')}[{sizes}{more}]"


@cache
def may_share(op: OpOverload) -> bool:
    """Return True if results of ``op`` may share memory with its operands."""
    if schema_of(op).name in _UNDECLARED or any(r.alias_info is not None for r in schema_of(op).returns):
        return True
    return op.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)


def _expected(text: str) -> dict[int, list[Type | None]]:
    """Return, for each line of a program, the types of its results; None for an unused result."""
    lines = ((number, _CALL.search(line)) for number, line in enumerate(text.splitlines(), 1))
    return {number: list(map(_type, _TYPE.finditer(found[1]))) for number, found in lines if found}


def _type(match: re.Match[str]) -> Type | None:
    if match[1] is None:
        return None
    sizes = tuple(None if size == "?" else int(size) for size in match[2].split(", ") if size)
    strides = None if match[3] is None else tuple(int(stride) for stride in match[3].split(", ") if stride)
    return sizes, getattr(torch, match[1]), strides


def _difference(results: Iterable[object], expected: Iterable[Type | None]) -> str | None:
    """Return text on the first result whose shape or dtype is not as expected; None if all are."""
    for number, (made, type_) in enumerate(zip(results, expected, strict=False)):
        if type_ is not None and not _is(made, *type_[:2]):
            return f"{_text(made)} as result {number}, where the program has {type_text(*type_[:2])}"
    return None


def _is(made: object, shape: tuple[int | None, ...], dtype: torch.dtype) -> bool:
    if not isinstance(made, Tensor) or made.dtype != dtype or made.dim() != len(shape):
        return False
    return all(n is None or n == size for n, size in zip(shape, made.shape, strict=True))


def _laid_otherwise(results: Iterable[object], expected: Iterable[Type | None]) -> str | None:
    """Return text on the first result with unexpected strides in dims of more than one element, or None."""
    for number, (made, type_) in enumerate(zip(results, expected, strict=False)):
        if type_ is None or type_[2] is None or not isinstance(made, Tensor) or not made.numel():
            continue
        if any(a != b for a, b, n in zip(made.stride(), type_[2], made.shape, strict=True) if n > 1):
            return f"strides {made.stride()} of result {number}, where the program has {type_text(*type_)}"
    return None


def _shared(results: Iterable[object], args: Iterable[object]) -> str | None:
    """Return text on the first result in an argument's memory, for an operator that returns new memory."""
    held = {storage_address(x.untyped_storage()) for x in _tensors(args)}
    for number, made in enumerate(_tensors(results)):
        if storage_address(made.untyped_storage()) in held:
            return f"result {number} in the memory of an argument, where the program has new memory"
    return None


def _tensors(args: Iterable[object]) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, tuple | list):
            yield from _tensors(arg)


def _text(made: object) -> str:
    return type_text(made.shape, made.dtype) if isinstance(made, Tensor) else repr(made)
