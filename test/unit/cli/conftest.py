"""Tests of ``shardc plan`` take the small model of tests of planning."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "planning"))
