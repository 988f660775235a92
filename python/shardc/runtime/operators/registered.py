"""Custom operators of the user that a program calls. They must be registered before it is loaded."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch

from ..check import Json
from ..errors import MissingOperator
from ..python_file import imported_file


def import_library(name: str) -> None:
    """Import a module by name, or a Python file by path, that registers operators. Raises MissingOperator."""
    try:
        if name.endswith(".py"):
            path = Path(name)
            imported_file(path.stem, path, listed=True)
        else:
            importlib.import_module(name)
    except (ImportError, OSError, ValueError) as error:  # ValueError: an empty name
        hint = "name a module that Python finds, or a .py file"
        raise MissingOperator(f"{name} can't be imported: {error}", "--import", hint) from None
    except Exception as error:
        what = f"{name} can't be imported: it raised {type(error).__name__}: {error}"
        raise MissingOperator(what, "--import", f"make `python -c 'import {name}'` work first") from error


def check_operators(manifest: Json) -> None:
    """Raise MissingOperator if an operator of the program is not registered in this process."""
    missing = [entry["name"] for entry in manifest["operators"] if not _is_registered(entry["name"])]
    if missing:
        names = ", ".join(missing)
        what = f"the program calls {names}, which no library has registered with PyTorch in this process"
        hint = "import the module that registers it before the artefact is loaded; "
        raise MissingOperator(what, hint=f"{hint}run, check, explain and run.py take --import MODULE")


def _is_registered(name: str) -> bool:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return hasattr(getattr(getattr(torch.ops, namespace), base, None), overload or "default")
