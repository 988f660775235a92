"""Results of a program's calls are compared with their declared types in the first run only."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.runtime.errors import ResultMismatch
from shardc.runtime.first_run import FirstRun, ResultMismatchWarning, called_operators

HEAD = """
import torch
exp = torch.ops.aten.exp.default
layer_norm = torch.ops.aten.native_layer_norm.default
reshape = torch.ops.aten.reshape.default
relu_ = torch.ops.aten.relu_.default
def step(x, w):
    # model.py:7
"""


def program(*lines: str, strict: bool = True) -> dict[str, Any]:
    """The globals of a program of these lines."""
    text = HEAD + "".join(f"    {line}\n" for line in lines)
    names: dict[str, Any] = {}
    exec(text, names)
    names["first_run"] = FirstRun(text, names, called_operators(names), strict)
    return names


def is_bare(names: dict[str, Any]) -> bool:
    return all(isinstance(names[name], torch._ops.OpOverload) for name in ("exp", "layer_norm", "reshape"))


def test_checks_end_when_each_line_was_seen() -> None:
    right = program(
        "for n in range(2):",
        "    y = exp(x)  # bfloat16[2, ?]",
        "out, mean, _ = layer_norm(y, [4], w, w, 1e-05)  # bfloat16[2, 4], float32[2, 1], None",
        "return mean",
    )
    assert not is_bare(right)
    right["step"](torch.ones(2, 4, dtype=torch.bfloat16), torch.ones(4))
    assert is_bare(right)


def test_checks_of_what_does_not_run_are_ended() -> None:
    """A rank of a pipeline runs some functions of its program, not all."""
    right = program("y = exp(x)  # float32[2]", "return y", "def other(x):", "    y = exp(x)  # float32[2]")
    right["step"](torch.ones(2), None)
    assert not is_bare(right)
    right["first_run"].end()
    assert is_bare(right)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "y = exp(x)  # float32[2, 4]",
            "aten.exp.default returned bfloat16[2, 4] as result 0, where the program has float32",
        ),
        ("y = exp(x)  # bfloat16[4, 2]", "where the program has bfloat16[4, 2]"),
        ("y = exp(x)  # bfloat16[8]", "where the program has bfloat16[8]"),
        (
            "out, mean, rstd = layer_norm(x, [4], w, w, 1e-05)  # None, bfloat16[2, 1], float32[2, 1]",
            "float32[2, 1] as result 1",
        ),
    ],
)
def test_what_came_and_where_is_named(line: str, said: str) -> None:
    wrong = program(line)
    arguments = torch.ones(2, 4, dtype=torch.bfloat16), torch.ones(4)
    for _ in range(2):  # a step that is tried again is no more right
        with pytest.raises(ResultMismatch) as caught:
            wrong["step"](*arguments)
        assert said in str(caught.value) and "at: model.py:7" in str(caught.value)
    with pytest.warns(ResultMismatchWarning, match="model.py:7"):
        program(line, strict=False)["step"](*arguments)


def test_memory_that_is_shared_unforeseen_is_named() -> None:
    """An operator's own schema says what it may share: an expand may, a custom operator without aliases may
    not.
    """

    with torch.library._scoped_library("shardc_first_run", "FRAGMENT") as library:
        library.define("same(Tensor x) -> Tensor")
        library.impl("same", lambda x: x[:], "CPU")
        text = (
            "import torch\nsame = torch.ops.shardc_first_run.same.default\ndef step(x):\n    y = "
            "same(x)  # float32[2]\n"
        )
        names: dict[str, Any] = {}
        exec(text, names)
        FirstRun(text, names, called_operators(names), strict=True)
        with pytest.raises(ResultMismatch, match="in the memory of an argument"):
            names["step"](torch.ones(2))
    program("y = reshape(x, [2, 1])  # float32[2, 1]")["step"](torch.ones(2), None)
    program("y = relu_(x)  # float32[2]")["step"](torch.ones(2), None)
