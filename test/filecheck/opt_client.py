"""``opt_client.py SOCKET ...`` runs ``shardc ...`` in the server of ``opt_server.py`` and ends as it does."""

import json
import os
import socket
import sys
import time

PATIENCE_S = 60
"""For the server to have imported everything."""

connection, start = socket.socket(socket.AF_UNIX), time.monotonic()
while connection.connect_ex(sys.argv[1]):
    if time.monotonic() - start > PATIENCE_S:
        sys.exit(f"no server of shardc opt answers within {PATIENCE_S} s")
    time.sleep(0.1)
given = {"arguments": sys.argv[2:], "cwd": os.getcwd(), "environment": dict(os.environ)}
socket.send_fds(connection, [json.dumps(given).encode()], [0, 1, 2])
code = connection.recv(16)
sys.exit(int(code) if code else "the command's process ended without an exit code")
