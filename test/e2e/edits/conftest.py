"""Path of this folder, so that its tests find its modules."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
