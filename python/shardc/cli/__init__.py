"""The command line ``shardc``: compile, run, check, explain, schedule, tune, trials, doctor, opt and others.

Exit codes: 0 success, 1 a check failed, 2 bad input, 3 an error inside shardc, 130 interrupted.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.catalogue import check_silenced
from shardc.diagnostics.cli import NoCurrentFolder
from shardc.environment import DEBUG, changed
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.report.logs import start as start_logs

BAD_INPUT = 2
INTERNAL_ERROR = 3
INTERRUPTED = 130

COLLECTED_EVERY = 100_000
"""New objects between two runs of Python's garbage collector. By default, every 700: a fifth of the time in
which PyTorch and transformers are imported."""

FAKE_TENSORS = "torch._subclasses.fake_tensor"
"""PyTorch's logger of errors while a step is traced. Written out, since importing torch takes a second."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A traceback is shown only with ``--debug``."""
    from shardc.cli.app import app
    from shardc.cli.options import refuse_old_flags

    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    # Removed here, so that the flag may stand before or after the command.
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _check_current_folder()
        refuse_old_flags(arguments)
        start_logs()
        check_silenced()
        with changed({DEBUG.name: "1"}) if debug else _quiet_torch(), _plain_warnings(), _rare_collections():
            app(args=arguments, prog_name="shardc")
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except ShardcError as error:
        return _report(error.render(), error.exit_code, debug)
    except RuntimeFailure as error:
        return _report(str(error), BAD_INPUT, debug)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _report(_internal(error), INTERNAL_ERROR, debug)
    finally:
        if argv is None:  # the process ends: a last collection of all that a command made may take 2 s
            gc.freeze()
    return 0


def _check_current_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise NoCurrentFolder from None


@contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Keep torch from logging its own traceback for an error that shardc reports."""
    logger, nothing = logging.getLogger(FAKE_TENSORS), logging.Filter("nothing")
    # A filter instead of a level, because torch sets the levels of its loggers when it is imported.
    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print shardc's warnings as one line, without the source line that issued them."""
    usual = warnings.formatwarning

    def plain(
        message: Warning | str, category: type[Warning], filename: str, number: int, line: str | None = None
    ) -> str:
        if category.__module__.startswith("shardc."):
            return f"{category.__name__}: {message}\n"
        return usual(message, category, filename, number, line)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _report(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code


def _internal(error: Exception) -> str:
    """Describe an internal error in one line, however long its own message is."""
    notes = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
    text = (str(error).strip().splitlines() or [""])[0]
    return f"internal error{notes}: {type(error).__name__}: {text} (run with --debug for the traceback)"
