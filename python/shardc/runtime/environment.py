"""Environment variables that a running step reads. ``docs/reference/environment.md`` lists them.

An artefact carries this module, so it imports nothing of the compiler, whose own variables are in
``shardc/environment.py``. No other module reads or changes ``os.environ``.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from .errors import BadVariable

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """Environment variable.

    Attributes:
        name: Its name in the environment.
        kind: What its value is, with the unit: ``seconds``, ``bytes``, ``path``.
        default: Its value if it is not set.
        parse: Converts its text to the value. Raises ValueError or KeyError for invalid text.
        effect: Its effect, as a sentence for the reference.
        otherwise: The default as text, if the value of ``default`` explains too little.
    """

    name: str
    kind: str
    default: T
    parse: Callable[[str], T]
    effect: str
    otherwise: str = ""

    def get(self) -> T:
        """Return the present value. Raises BadVariable for invalid text."""
        text = self.text()
        try:
            return self.default if text is None else self.parse(text)
        except (ValueError, KeyError):
            hint = f"unset it, or set it to a value of this kind: {self.kind}"
            raise BadVariable(f"{self.name} is {text!r}", "the environment variables", hint) from None

    def text(self) -> str | None:
        """Return the variable's text, or None if it is not set."""
        return os.environ.get(self.name)


def child_environment(**changes: str | None) -> dict[str, str]:
    """Return the environment of a child process: this one's with ``changes``; None removes a variable."""
    return {name: text for name, text in {**os.environ, **changes}.items() if text is not None}


@contextmanager
def changed(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change variables of this process within a context. The value None removes a variable."""
    saved = {name: os.environ.get(name) for name in changes}
    try:
        _write(changes)
        yield
    finally:
        _write(saved)


def _write(changes: Mapping[str, str | None]) -> None:
    for name, text in changes.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text


TIMEOUT_S = Variable(
    "SHARDC_TIMEOUT_S", "seconds", 300.0, float, "How long a rank waits for the others in one collective."
)
SYMMETRIC_BYTES = Variable(
    "SHARDC_SYMMETRIC_BYTES",
    "bytes",
    1 << 20,
    int,
    "The largest collective within a host that goes through symmetric memory; 0 leaves all to NCCL.",
)
DEBUG = Variable(
    "SHARDC_DEBUG",
    "flag",
    False,
    bool,
    "Ranks print the traceback of every error. `shardc run --debug` sets it for the ranks that it starts.",
)
PROFILE_RANGES = Variable(
    "SHARDC_PROFILE_RANGES",
    "0 or 1",
    False,
    "1".__eq__,
    "1 puts the ops of a step, in traces of `torch.profiler`, under ranges such as `forward model.py:12`.",
)
FAULT = Variable(
    "SHARDC_FAULT",
    "`rank:step` or `rank:step:stop`",
    "",
    str,
    "For drills: `1:2` kills rank 1 at step 2, `1:2:stop` lets it hang there.",
    "none",
)
RANK = Variable("RANK", "number", "0", str, "The rank of this process; torchrun sets it.")
WORLD_SIZE = Variable("WORLD_SIZE", "number", 1, int, "The number of processes; torchrun sets it.")
LOCAL_RANK = Variable(
    "LOCAL_RANK", "number", 0, int, "The rank within the host, which selects its GPU; torchrun sets it."
)
LOCAL_WORLD_SIZE = Variable(
    "LOCAL_WORLD_SIZE", "number", 1, int, "The number of processes on this host; torchrun sets it."
)
AGENT_STORE = Variable(
    "TORCHELASTIC_USE_AGENT_STORE",
    "`True` or unset",
    False,
    "True".__eq__,
    "Whether torchrun holds the ranks' store, or rank 0 keeps it at the end; torchrun sets it.",
)
LAUNCHER = Variable(
    "SHARDC_LAUNCHER",
    "number",
    0,
    int,
    "The process that started this rank, with which it ends; `shardc run` sets it.",
    "none",
)
LOGS = Variable(
    "SHARDC_LOGS",
    "topics separated by commas",
    "",
    str,
    "What is logged: `plan`, `reshard`, `fusion`, `cache`, `timing`, `progress`, `all`. `+name` logs more, "
    "`-name` nothing; `help` prints the list.",
    "none",
)
SILENCE = Variable(
    "SHARDC_SILENCE",
    "ids separated by commas",
    frozenset[str](),
    lambda text: frozenset(filter(None, (part.strip() for part in text.split(",")))),
    "Remarks and warnings that are not said; [messages](messages.md) lists the ids.",
    "none",
)
PROGRESS = Variable(
    "SHARDC_PROGRESS",
    "0 or 1",
    True,
    {"0": False, "1": True}.__getitem__,
    "0 shows no progress of what takes more than 2 s.",
    "1",
)
TRITON_INTERPRET = Variable(
    "TRITON_INTERPRET",
    "0 or 1",
    False,
    "1".__eq__,
    "1 runs Triton kernels in Triton's interpreter, on the CPU.",
)
ALLOCATOR = Variable(
    "PYTORCH_ALLOC_CONF",
    "PyTorch's settings",
    "",
    str,
    "PyTorch's settings of its allocator. Without them a step on a GPU sets `expandable_segments:True`.",
    "none",
)
CUDA_ALLOCATOR = Variable(
    "PYTORCH_CUDA_ALLOC_CONF",
    "PyTorch's settings",
    "",
    str,
    "The former name of `PYTORCH_ALLOC_CONF`, which acts alike.",
    "none",
)
