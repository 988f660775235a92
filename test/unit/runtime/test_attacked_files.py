"""Attacks on an artefact's files: only files that the manifest and the source name are opened or run."""

from __future__ import annotations

import hashlib
import os
import py_compile
import signal
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from shardc.runtime import check
from shardc.runtime.errors import BadArtefact
from shardc.runtime.program import Program
from shardc.runtime.python_file import imported_file

PROGRAM = "GROUPS = []\n\n\ndef step(rank):\n    return ()\n"


def plant(source: Path, text: str) -> None:
    """Bytecode of another program beside a file, which Python's own loader takes without a look at it."""
    other = source.with_name("other.txt")
    other.write_text(text)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), cache_from_source(str(source)), doraise=True, invalidation_mode=mode)
    other.unlink()


def test_bytecode_beside_a_program_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    plant(path, "raise SystemExit('the attack runs')")
    assert Program.load(path).groups == ()
    assert len(list((tmp_path / "__pycache__").iterdir())) == 1  # nor is any written


def test_bytecode_beside_a_module_of_kernels_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "kernel_0.py"
    path.write_text("NAME = 'kernel'\n")
    plant(path, "raise SystemExit('the attack runs')")
    assert imported_file("attacked_kernels.kernel_0", path).NAME == "kernel"


def test_only_source_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "kernel_0.pyc"
    path.write_text("")
    with pytest.raises(ImportError, match="not a Python file"):
        imported_file("attacked_kernels.kernel_1", path)


def listed(folder: Path, name: str, content: bytes) -> check.Json:
    (folder / name).write_bytes(content)
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"files": {name: entry}}


def test_large_files_are_hashed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two ranks of a host one hashes a large file; a lone one hashes all."""
    monkeypatch.setattr(check, "SHARED_BYTES", 100)
    manifest = listed(tmp_path, "state.safetensors", bytes(1000))
    check.check_files(tmp_path, manifest)
    (tmp_path / "state.safetensors").write_bytes(bytes(999) + b"\1")
    with pytest.raises(BadArtefact, match="SHA-256"):
        check.check_files(tmp_path, manifest)
    found = []
    for rank in range(2):
        try:
            check.check_files(tmp_path, manifest, rank, 2)
        except BadArtefact:
            found.append(rank)
    assert len(found) == 1


def test_every_rank_hashes_code(tmp_path: Path) -> None:
    manifest = listed(tmp_path, "program.py", b"step")
    (tmp_path / "program.py").write_bytes(b"steq")
    for rank in range(2):
        with pytest.raises(BadArtefact, match="SHA-256"):
            check.check_files(tmp_path, manifest, rank, 2)


@pytest.mark.parametrize(
    "name",
    ["../outside", "levels/../../outside", "/etc/hostname", "", ".", "..", "./program.py", "levels//a"],
)
def test_a_name_in_the_manifest_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    manifest = listed(tmp_path, "outside", b"what a manifest has no business with")
    manifest["files"] = {name: manifest["files"]["outside"]}
    with pytest.raises(BadArtefact, match="not the name of a file inside the folder"):
        check.check_files(tmp_path / "out", manifest)


LAUNCHER = """
import os, subprocess, sys
code = '''
import os, sys, time
sys.path.insert(0, {runtime!r})
from shardc.runtime.comm.launcher import end_with_launcher
end_with_launcher()
print(os.getpid(), flush=True)
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", code], env=os.environ | {{"SHARDC_LAUNCHER": {launcher}}}).wait()
"""


def end_of(launcher: str) -> tuple[str, int]:
    """What a rank printed, and the signal that its launcher was ended by; returns when the rank has ended."""
    runtime = str(Path(check.__file__).parents[2])
    text = LAUNCHER.format(runtime=runtime, launcher=launcher)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    if said:
        os.kill(process.pid, signal.SIGKILL)
    process.stdout.read()  # ends when all have closed it: the rank holds it, too
    return said, process.wait()


def test_a_rank_ends_with_a_launcher_that_is_killed() -> None:
    said, code = end_of("str(os.getpid())")
    assert int(said) and code == -signal.SIGKILL


def test_a_rank_whose_launcher_is_gone_does_not_begin() -> None:
    said, code = end_of("'1'")
    assert said == "" and code == 0
