"""The directory is importable: tests share the model ``Titan`` and its plans."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
