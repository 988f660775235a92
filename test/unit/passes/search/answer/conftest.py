"""Tests of answers take the random graphs of the searches."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
