"""The directory is importable: tests share the config of a small model."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
