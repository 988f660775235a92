"""Finds this folder's modules by path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
