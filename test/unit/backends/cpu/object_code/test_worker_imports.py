"""The process that makes machine code starts without torch."""

import subprocess
import sys

from shardc.backends.cpu.object_code.object_code import WORKER

LOADED = """
import sys
sys.path[1:1] = sys.argv[1:]
from shardc.backends.cpu.object_code import lower
print(sorted({"torch", "sympy"} & sys.modules.keys()))
"""


def test_the_worker_imports_neither_torch_nor_sympy():
    assert "object_code.lower import lower" in WORKER.read_text()
    command = [sys.executable, "-I", "-S", "-c", LOADED, *filter(None, sys.path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"
