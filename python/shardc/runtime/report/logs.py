"""Logging by topics, as with ``TORCH_LOGS``: ``SHARDC_LOGS=plan,+fusion,-progress``.

Each topic is a Python logger, such as ``shardc.plan``. Without the variable it is silent, unless a program
sets its level. With the variable, lines go to standard error in this form::

    [rank1] shardc.reshard: all_gather of [64, 256] float32 over data: 49.2 kB at model.py:12
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from difflib import get_close_matches

from ..environment import LOGS, RANK, WORLD_SIZE
from ..errors import BadVariable
from .progress import erased

PLAN = logging.getLogger("shardc.plan")
RESHARD = logging.getLogger("shardc.reshard")
FUSION = logging.getLogger("shardc.fusion")
CACHE = logging.getLogger("shardc.cache")
TIMING = logging.getLogger("shardc.timing")
PROGRESS = logging.getLogger("shardc.progress")

TOPICS = {
    "plan": "what was sharded, and why; with +, every remark too",
    "reshard": "each collective with its line and the bytes that a device sends",
    "fusion": "kernels, and regions that stay calls with the reason; with +, the whole report of fusion",
    "cache": "programs, traces and kernels: found, made, and why they are of no use",
    "timing": "seconds of each phase",
    "progress": "what takes more than 2 s (on unless -progress is given)",
}
OFF = logging.CRITICAL + 1
LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": OFF}

_applied: str | None = None


def start() -> None:
    """Configure the loggers by ``SHARDC_LOGS``. This is cheap if the variable has not changed.

    Raises BadVariable for a name that is no topic.
    """
    global _applied
    text = LOGS.get()
    if text == _applied:
        return
    levels, wants_help = read(text)
    for name in TOPICS:
        _set(name, levels.get(name))
    _applied = text
    if wants_help and RANK.get() == "0":
        print(help_text(), file=sys.stderr)


def read(text: str) -> tuple[dict[str, int], bool]:
    """Return the level of each topic that ``text`` names, and whether it asks for help.

    A later part overrides an earlier one, and a topic's name overrides ``all``. Raises BadVariable.
    """
    levels: dict[str, int] = {}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    signs = [(part[:1] if part[0] in "+-" else "", part.lstrip("+-")) for part in parts]
    for sign, name in sorted(signs, key=lambda part: part[1] != "all"):
        if name not in (*TOPICS, "all", "help"):
            raise _unknown(text, name)
        levels |= dict.fromkeys(TOPICS if name == "all" else [name], LEVELS[sign])
    return levels, levels.pop("help", None) is not None


def help_text() -> str:
    """Return the list of topics, with the variable's syntax."""
    rows = [f"  {name:<9} {text}" for name, text in {**TOPICS, "all": "all of these"}.items()]
    form = "SHARDC_LOGS is a list separated by commas: name logs, +name logs more, -name nothing."
    return "\n".join([form, *rows])


def seconds(phases: Iterable[tuple[str, float]], title: str) -> None:
    """Log the time of each phase."""
    if TIMING.isEnabledFor(logging.INFO):
        for name, took_s in phases:
            TIMING.info("%s: %s: %.3f s", title, name, took_s)


class Handler(logging.StreamHandler):
    """Handler that writes to the current ``sys.stderr``, and erases the progress line first."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record. Each line starts with the topic, and under torchrun with the rank before it."""
        self.stream = sys.stderr
        with erased():
            super().emit(record)


class Form(logging.Formatter):
    """Formatter of a record's lines, as ``[rank0] shardc.plan: text``."""

    def format(self, record: logging.LogRecord) -> str:
        rank = f"[rank{RANK.get()}] " if WORLD_SIZE.get() > 1 else ""
        return "\n".join(
            f"{rank}{record.name}: {line}" for line in super().format(record).splitlines() or [""]
        )


_handler = Handler()
_handler.setFormatter(Form("%(message)s"))


def _set(name: str, level: int | None) -> None:
    """Add the handler to a topic that the variable names, and to progress if it has no other handler."""
    logger = logging.getLogger(f"shardc.{name}")
    was_ours = _handler in logger.handlers
    if was_ours:
        logger.removeHandler(_handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    if level is None and name == "progress":
        level = logging.INFO
        if logger.hasHandlers() or logger.level != logging.NOTSET:
            logger.setLevel(logger.level or level)
            return
    if level is not None:
        logger.addHandler(_handler)
        logger.propagate = False
        logger.setLevel(level)


def _unknown(text: str, name: str) -> BadVariable:
    near = get_close_matches(name, [*TOPICS, "all", "help"], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    what = f"{LOGS.name} is {text!r}, but {name!r} is not a topic"
    return BadVariable(what, "the environment variables", f"{hint}topics are {', '.join(TOPICS)}, all; help")
