"""Tests of the tuner share a space with known times: surface.py."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
