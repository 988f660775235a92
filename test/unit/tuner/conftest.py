"""The directory is importable: tests share how tasks are made, and a space with known times."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "bench"))
