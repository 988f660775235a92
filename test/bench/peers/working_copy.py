"""A working copy of Sailor's repository, with its planners' C++ parts compiled for one Python interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PLANNER = Path("sailor/Planner")
_ASK = "import sysconfig, pybind11; print(sysconfig.get_paths()['include'], pybind11.get_include(), end=' ');"
_ASK += "print(sysconfig.get_config_var('EXT_SUFFIX'))"
_CPP = ["g++", "-O3", "-fPIC"]


@dataclass(frozen=True)
class Copy:
    """A copy. ``root``: what Sailor's code calls ``SAILOR_PATH``. ``failed``: why planners have no build."""

    root: Path
    python: Path
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def planner(self) -> Path:
        return self.root / "sailor" / PLANNER


def copy_of(repository: Path, python: Path, work: Path) -> Copy:
    """Copy Sailor's package to a folder and compile it there; the given repository stays as it is.

    jsoncpp's headers and library have to be where the compiler looks for them (``CPLUS_INCLUDE_PATH``,
    ``LIBRARY_PATH``). ``python`` needs pybind11.
    """
    target = work / "sailor" / "sailor"
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(repository / "sailor", target)
    planner, answer = target / "Planner", subprocess.run([python, "-c", _ASK], capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"{python} has no pybind11: {answer.stderr.strip()}")
    include, pybind, suffix = answer.stdout.split()
    found = os.environ.get("CPLUS_INCLUDE_PATH", "").split(":")
    environment = {**os.environ, "CPLUS_INCLUDE_PATH": ":".join(filter(None, [*found, include, pybind]))}
    sources = planner / "sailor_planner" / "cpp_src"
    files = sorted(map(str, sources.rglob("*.cpp")))
    library = str(planner / "simulations" / f"libplanner{suffix}")
    varuna, galvatron = planner / "baselines/Varuna/simulator", planner / "baselines/Galvatron/csrc"
    commands: dict[str, tuple[Path, Sequence[str]]] = {
        "Piper": (planner / "baselines/Piper/src", ["g++", "-O3", "algo.cpp", "-ljsoncpp", "-o", "algo.bin"]),
        "Varuna": (varuna, ["g++", "-std=c++11", *_sources(varuna), "-o", "simulate-varuna.bin"]),
        "Galvatron": (galvatron, [*_CPP, "-shared", "dp_core.cpp", "-o", f"galvatron_dp_core{suffix}"]),
        "Sailor": (sources, [*_CPP, "-shared", *files, "-ljsoncpp", "-o", library]),
    }
    failed = dict[str, str]()
    for name, (folder, command) in commands.items():
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[-200:]]
            failed[name] = f"its C++ part does not compile: {errors[0]}"
    return Copy(work, python, failed)


def _sources(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.glob("*.cc"))]
