"""``Probe``: a call with odd input, which must succeed or raise an error of shardc."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from shardc.diagnostics.base import ShardcError
from shardc.runtime.errors import RuntimeFailure

ODD: dict[str, object] = {
    "None": None,
    "True": True,
    "0": 0,
    "-1": -1,
    "1.5": 1.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "2**31": 2**31,
    "2**63": 2**63,
    "10**400": 10**400,
    "empty text": "",
    "text": "nowhere",
    "NUL": "a\0b",
    "long text": "x" * 5000,
    "bytes": b"x",
    "list": [],
    "list of numbers": [0, -1],
    "mapping": {},
    "mapping of numbers": {0: 0},
    "class": int,
    "object": object(),
    "function": lambda *_: None,
    "dtype": torch.int8,
    "tensor": torch.ones(2),
}
"""Values that most arguments do not take."""


@dataclass(frozen=True)
class Probe:
    """A call by name."""

    name: str
    call: Callable[[], object]

    def problem(self) -> str:
        """What is wrong with how it ended, empty if it returned or raised an error of ours."""
        try:
            self.call()
        except (ShardcError, RuntimeFailure) as error:
            return (
                "" if str(error).startswith(type(error).__name__) else f"an error without its name: {error}"
            )
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {str(error)[:200]} ({frame.filename}:{frame.lineno})"
        return ""
