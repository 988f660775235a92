"""Saving the plan of a compile."""

from __future__ import annotations

import json
from pathlib import Path

from shardc.driver.compiler import Compiled


def save_plan(path: Path, compiled: Compiled) -> None:
    path.write_text(json.dumps(compiled.plan_json, indent=1) + "\n")
