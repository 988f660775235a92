"""Fixtures: the random graphs of the search tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
