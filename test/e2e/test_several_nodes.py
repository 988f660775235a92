"""Two agents of torchrun on two loopback addresses, as the guide starts them, each with its own cache."""

from __future__ import annotations

import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import guides
import pytest
import readme

BIN = Path(sys.executable).parent
FILES, COMMANDS = guides.scripts("several_nodes")
pytestmark = [pytest.mark.processes, pytest.mark.slow]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def on_both_nodes(commands: list[str], folder: Path) -> list[str]:
    """What the two commands of a pair print; they run at the same time."""
    port = str(free_port())
    ported = [re.sub(r"(--master-port) \d+", rf"\1 {port}", command) for command in commands]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda command: readme.run(command, folder, BIN), ported))


def losses(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"loss\s+([\d.e+-]+)", text)]


def eager_losses(script: Path) -> list[float]:
    """Five steps of the guide's training in one process, with torch alone."""
    names: dict[str, object] = {"__name__": "train"}
    exec(compile(script.read_text(), str(script), "exec"), names)
    model, optimizer, batch, loss = names["build"]()
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        value = loss(model(*batch), batch)
        value.backward()
        optimizer.step()
        found.append(value.item())
    return found


def test_the_guide(tmp_path: Path) -> None:
    """Training on two nodes is that of one process; so is an artefact's, from a folder that both see."""
    assert len(COMMANDS) == 5
    for name, script in FILES.items():
        (tmp_path / name).write_text(script)
    expected = eager_losses(tmp_path / "train.py")
    first, second = on_both_nodes(COMMANDS[:2], tmp_path)
    assert losses(first) == pytest.approx(expected, rel=1e-5, abs=2e-6)
    assert losses(second) == [], "rank 0 alone prints, which is on the first node"
    for node in ("node0", "node1"):
        assert [*(tmp_path / node / "cache").rglob("*.so")], f"{node} compiled into its own cache"
        left = {path.name.partition("_")[0] for path in (tmp_path / node / "tmp").iterdir()}
        assert left <= {"torchelastic", "torchinductor"}, "what torchrun and PyTorch leave, and no more"

    readme.run(COMMANDS[2], tmp_path, BIN)
    first, second = on_both_nodes(COMMANDS[3:], tmp_path)
    assert losses(first) == pytest.approx(expected, rel=1e-3)
    assert losses(second) == []
    assert [*(tmp_path / "shared" / "checkpoint").rglob("*.distcp")]
