"""``shardc opt`` without its start: a server that has imported everything forks a process for each command.

Importing takes 3 seconds, most tests far less. ``lit.cfg.py`` starts the server; ``opt_client.py`` sends it a
command line with the client's own input and output. The server ends when its standard input closes, which
lit holds open.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
from importlib import import_module
from pathlib import Path

from shardc.cli import app, main  # noqa: F401  (all commands, imported before a fork)
from shardc.passes.manager.registry import PASSES


def serve(path: str) -> None:
    """Answers at the socket ``path`` until standard input ends."""
    for where in PASSES.values():
        import_module(where.partition(":")[0])
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(16)
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            if os.fork() == 0:  # nobody waits for a grandchild
                answer(connection)
            os._exit(0)
        connection.close()
        os.wait()
    shutil.rmtree(Path(path).parent)


def answer(connection: socket.socket) -> None:
    """Runs one command with the client's files and says with what it ended."""
    request, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    given = json.loads(request)
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(given["cwd"])
    os.environ.update(given["environment"])
    sys.argv = ["shardc", *given["arguments"]]
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(str(code).encode())
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
