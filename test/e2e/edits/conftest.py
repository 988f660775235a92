"""Puts this folder on the path, so that its tests find the modules beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
