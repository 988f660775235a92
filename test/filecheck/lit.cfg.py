"""Configures lit. A test is a .mlir file with lines such as
``// RUN: shardc-opt --cse %s | filecheck %s``.
"""

import os
import subprocess
import sys
import tempfile

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

# Every RUN line would import torch and MLIR for three seconds: one server does it for all, until lit ends.
HERE = config.test_source_root  # noqa: F821
SOCKET = os.path.join(tempfile.mkdtemp(prefix="shardc-lit-"), "socket")
GIVEN, HELD = os.pipe()  # what ends the server: this process holds the other end until it is gone
subprocess.Popen(
    [sys.executable, os.path.join(HERE, "opt_server.py"), SOCKET],
    stdin=GIVEN,
    env={**os.environ, **config.environment},  # noqa: F821
)
os.close(GIVEN)

# lit itself knows `not`, which inverts an exit code. filecheck comes first: the client's path has its name.
config.substitutions += [  # noqa: F821
    (r"\bfilecheck\b", os.path.join(BIN, "filecheck")),
    (r"\bshardc-opt\b", f"{sys.executable} -S -E {os.path.join(HERE, 'opt_client.py')} {SOCKET} opt"),
]

# oneDNN multiplies matrices of bf16 with AVX-512 alone.
with open("/proc/cpuinfo") as cpu:
    if "avx512f" in cpu.read():
        config.available_features.add("avx512")  # noqa: F821
