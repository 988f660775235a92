"""The directory is importable: tests share the config of a small model; and that with readers of traces."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "e2e")]
