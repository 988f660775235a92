"""The file of a saved plan: whether it is one, and of the version that this shardc reads."""

import json
from pathlib import Path

from shardc.diagnostics.plan import BadPlanFile

SCHEMA = "shardc-plan"
VERSION = 1


def named_file(given: object, suffix: str) -> Path | None:
    """The file that a user names by its path, or by a text with this suffix."""
    is_file = isinstance(given, Path) or (isinstance(given, str) and given.endswith(suffix))
    return Path(str(given)) if is_file else None


def load_plan_file(path: Path) -> dict[str, object]:
    """What a saved plan holds. Raises BadPlanFile."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadPlanFile(path=path, problem="there is no such file") from None
    except json.JSONDecodeError as error:
        problem = f"it is not whole JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        raise BadPlanFile(path=path, problem=problem) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadPlanFile(path=path, problem=f"it can't be read ({error})") from None
    check_plan_version(data, path)
    return data


def check_plan_version(data: object, path: Path) -> None:
    """Raises BadPlanFile."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BadPlanFile(path=path, problem=f'it has no "schema": "{SCHEMA}"')
    if data.get("version") != VERSION:
        problem = f"it is of version {data.get('version')}; this shardc reads version {VERSION}"
        raise BadPlanFile(path=path, problem=problem)
