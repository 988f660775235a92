"""Test folders are no packages in pytest's importlib mode; this one's modules are found by path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
