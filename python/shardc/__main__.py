"""``python -m shardc``: the command line."""

import sys

from shardc.cli import main

sys.exit(main())
