"""Tests of searches take the random graphs beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
