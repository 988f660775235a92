"""Configures lit. A test is a .mlir file with lines such as
``// RUN: shardc-opt --cse %s | filecheck %s``.
"""

import os
import sys

import lit.formats

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.dirname(sys.executable)

config.name = "shardc"  # noqa: F821  (lit defines config)
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.test_source_root = os.path.dirname(os.path.abspath(__file__))  # noqa: F821
config.test_exec_root = os.path.join(ROOT, "build", "lit")  # noqa: F821
config.environment["OMP_NUM_THREADS"] = "1"  # noqa: F821
# The tests are of the tree that they stand in, whichever tree the environment has installed.
config.environment["PYTHONPATH"] = os.path.join(ROOT, "python")  # noqa: F821

# lit itself knows `not`, which inverts an exit code.
config.substitutions += [  # noqa: F821
    (r"\bshardc-opt\b", os.path.join(BIN, "shardc") + " opt"),
    (r"\bfilecheck\b", os.path.join(BIN, "filecheck")),
]
