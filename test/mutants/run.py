"""``make mutants``: which tests catch the planted bugs of this folder.

A mutant is a patch of one to three lines that makes the product wrong, with a sentence on what breaks. Each
is applied to a copy of the tree; the tests nearest to the patched file run first, and the first failure ends
it. A failure counts if the same test passes in the copy without the patch. Tests that are not marked ``slow``
are those of ``make test``; the slow ones run only if these let the mutant through.

Results go to ``test/mutants/results.json`` after each mutant, with a hash of the patch: an interrupted run
goes on where it stopped, and a changed patch is tried anew. ``--again`` tries all, each with the test that
caught it before first. The table goes to ``test/mutants/table.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))

from imports import import_graph, imported, module_files  # noqa: E402

TABLE, RESULTS = HERE / "table.md", HERE / "results.json"
FAST, ALL = "make test", "make test-all"
LIT = str(Path(sys.executable).with_name("lit"))
"""The command: ``python -m lit.main`` runs nothing."""
LIMIT_S = 1800
"""For one group of tests: a mutant may make a program wait for ever, which counts as caught."""
GROUP = 12
"""Test files, at most, of a group: the next ones start only if none of these fails."""


@dataclass(frozen=True)
class Mutant:
    """A patch: its area (folder) and name, the text of the patch, and the file that it changes."""

    area: str
    name: str
    text: str
    file: str

    @property
    def place(self) -> str:
        return f"{self.area}/{self.name}"

    @property
    def key(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def breaks(self) -> str:
        """The sentence above the patch."""
        return self.text.partition("\n")[0]


@dataclass(frozen=True)
class Outcome:
    """``test`` caught the mutant with that ``key`` (empty: none did), which ``tier`` has."""

    key: str
    test: str
    tier: str


def read_mutants(folder: Path = HERE) -> list[Mutant]:
    """All patches, by area and name. Raises ValueError for one that does not change one file."""
    found = []
    for path in sorted(folder.glob("*/*.patch")):
        text = path.read_text()
        files = re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)
        if len(files) != 1 or not (ROOT / files[0]).is_file():
            raise ValueError(f"{path}: a mutant changes one file of the product; this one changes {files}")
        found.append(Mutant(path.parent.name, path.stem, text, files[0]))
    return found


def copy_tree(target: Path) -> None:
    """The tracked and new files of the working tree, links as links."""
    shutil.rmtree(target, ignore_errors=True)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        source, made = ROOT / name, target / name
        if source.is_symlink() or source.is_file():
            made.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, made, follow_symlinks=False)


def nearest_tests(file: str) -> list[list[str]]:
    """Groups of test files, and folders of lit tests, the nearest to a file of the product first."""
    files, graph = module_files(), import_graph()
    module = next(name for name, path in files.items() if path == ROOT / file)
    near = {name for name, others in graph.items() if module in others}
    folder = str(Path(file).parent).removeprefix("python/shardc/")
    mirror = ROOT / "test" / "unit" / folder

    def distance(test: Path) -> tuple[int, int]:
        there = imported("", test, files)
        if mirror in test.parents and Path(file).stem in test.stem:
            return 0, 0
        if module in there:
            return 1, 0
        if mirror in test.parents:
            return 2, 0
        if there & near:
            return 4, -len(there & near)
        below = str(test.relative_to(ROOT / "test" / "unit")) if mirror.parents[0] in test.parents else ""
        return (5 if below else 6), 0

    ranked: dict[int, list[tuple[int, str]]] = {}
    for part in ("unit", "e2e", "zoo"):
        for test in (ROOT / "test" / part).rglob("test_*.py"):
            place, order = distance(test)
            ranked.setdefault(place, []).append((order, str(test.relative_to(ROOT))))
    lit = ROOT / "test" / "filecheck" / Path(*Path(folder).parts[:2])
    if lit.is_dir():
        ranked[3] = [(0, str(lit.relative_to(ROOT)))]
    groups = []
    for place in sorted(ranked):
        names = [name for _, name in sorted(ranked[place])]
        groups += [names[at : at + GROUP] for at in range(0, len(names), GROUP)]
    return groups


class Runner:
    """Runs tests in a copy of the tree with a mutant in it."""

    def __init__(self, tree: Path, jobs: int, limit_s: float) -> None:
        self._tree, self._jobs, self._limit_s = tree, jobs, limit_s
        self._sound: dict[str, bool] = {}

    def try_mutant(self, mutant: Mutant, before: str) -> Outcome:
        """``before``: a test that caught it before, if any, which is tried first.

        Raises RuntimeError if the patch does not apply, and TimeoutError if it takes too long.
        """
        self._patch(mutant)
        try:
            found = next(self._catches(mutant, [[before]] if before else []), ("", ""))
        finally:
            self._patch(mutant, "--reverse")
        return Outcome(mutant.key, *found)

    def _catches(self, mutant: Mutant, first: list[list[str]]) -> Iterator[tuple[str, str]]:
        """Tests that fail for the mutant, each with its tier."""
        groups, end = first + nearest_tests(mutant.file), time.monotonic() + self._limit_s
        for tier, marks in ((FAST, "not slow"), (ALL, "slow")):
            for names in groups:
                if time.monotonic() > end:
                    raise TimeoutError(f"no test caught it in {self._limit_s:.0f} s")
                for test in self._failures(names, marks):
                    if self._is_sound(test, mutant):
                        yield test, tier

    def _patch(self, mutant: Mutant, *options: str) -> None:
        command = ["git", "apply", "-C1", *options]
        done = subprocess.run(command, cwd=self._tree, input=mutant.text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{mutant.area}/{mutant.name}.patch does not apply: {done.stderr.strip()}")

    def _failures(self, names: list[str], marks: str) -> Iterator[str]:
        """The tests of a group that fail, one after the other as they are asked for."""
        if names[0].startswith("test/filecheck"):
            yield from self._lit_failures(names) if marks == "not slow" else ()
            return
        seen: list[str] = []
        while failed := self._first_failure(names, marks, seen):
            yield failed
            seen.append(failed)

    def _first_failure(self, names: list[str], marks: str, excluded: Iterable[str]) -> str | None:
        gone = [f"--deselect={name}" for name in excluded]
        jobs = [] if len(names) == 1 else ["-n", str(self._jobs)]
        text = self._run("-m", "pytest", "-x", "-m", marks, "-rfE", "--tb=no", *jobs, *gone, *names)
        if text is None:
            return f"{names[0]} (no end in {LIMIT_S} s)"
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
        return failed[1] if failed else None

    def _lit_failures(self, names: list[str]) -> Iterator[str]:
        text = self._run(LIT, "-j", str(self._jobs), "--max-failures=1", *names) or ""
        for name in re.findall(r"^FAIL: shardc :: (\S+)", text, re.MULTILINE):
            yield f"test/filecheck/{name}"

    def _run(self, *arguments: str) -> str | None:
        """The output of a run of Python in the copy; None if it did not end."""
        cache = self._tree.parent / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        environment = os.environ | {
            "PYTHONPATH": str(self._tree / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SHARDC_CACHE_DIR": str(cache),
        }
        how = {"cwd": self._tree, "env": environment, "capture_output": True, "text": True}
        try:
            return subprocess.run([sys.executable, *arguments], **how, timeout=LIMIT_S).stdout
        except subprocess.TimeoutExpired:
            return None

    def _is_sound(self, test: str, mutant: Mutant) -> bool:
        """Whether the test passes without the mutant."""
        if test not in self._sound and "(no end" not in test:
            self._patch(mutant, "--reverse")
            if test.endswith(".mlir"):
                self._sound[test] = not list(self._lit_failures([test]))
            else:
                self._sound[test] = not self._first_failure([test], "slow or not slow", ())
            self._patch(mutant)
        return self._sound.get(test, True)


def table(mutants: Iterable[Mutant], results: dict[str, Outcome]) -> str:
    """The results in Markdown, by area."""
    known = [(mutant, results[mutant.place]) for mutant in mutants if is_known(mutant, results)]
    fast = sum(outcome.tier == FAST for _, outcome in known)
    caught = sum(bool(outcome.test) for _, outcome in known)
    lines = [
        "# Planted bugs",
        "",
        "Written by `make mutants`. Each patch of `test/mutants/` plants a bug of one to three lines.",
        f"`make test` catches {fast} of {len(known)} that were tried, `make test-all` {caught}.",
    ]
    for area in dict.fromkeys(mutant.area for mutant, _ in known):
        lines += ["", f"## {area.capitalize()}", "", "| what breaks | caught by | tier |", "|---|---|---|"]
        lines += [
            f"| {mutant.breaks} | `{outcome.test or 'nothing'}` | {outcome.tier or '-'} |"
            for mutant, outcome in known
            if mutant.area == area
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of AREA/NAME of the mutants to try")
    parser.add_argument("--jobs", type=int, default=2)
    limit = "seconds after which a mutant is left for another run (default: none)"
    parser.add_argument("--limit-s", type=float, default=float("inf"), help=limit)
    parser.add_argument("--again", action="store_true", help="also those whose result is known")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants")
    given = parser.parse_args()
    mutants, found = read_mutants(), json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {place: Outcome(**value) for place, value in found.items()}
    asked = [m for m in mutants if given.only in m.place]
    chosen = [m for m in asked if given.again or not is_known(m, results)]
    copy_tree(given.out / "tree")
    runner = Runner(given.out / "tree", given.jobs, given.limit_s)
    for number, mutant in enumerate(chosen, 1):
        place, start = f"{number}/{len(chosen)} {mutant.place}", time.monotonic()
        before = results.get(mutant.place)
        try:
            outcome = results[mutant.place] = runner.try_mutant(mutant, before.test if before else "")
        except TimeoutError as error:
            print(f"{place} left: {error}", flush=True)
            continue
        RESULTS.write_text(json.dumps({p: asdict(o) for p, o in sorted(results.items())}, indent=1) + "\n")
        TABLE.write_text(table(mutants, results))
        caught = f"{outcome.tier}: {outcome.test}" if outcome.test else "NOT CAUGHT"
        print(f"{place} {time.monotonic() - start:.0f} s  {caught}", flush=True)
    missed = [m.name for m in asked if is_known(m, results) and not results[m.place].test]
    raise SystemExit(f"not caught: {', '.join(missed)}" if missed else 0)


def is_known(mutant: Mutant, results: Mapping[str, Outcome]) -> bool:
    """Whether this very patch has been tried."""
    return mutant.place in results and results[mutant.place].key == mutant.key


if __name__ == "__main__":
    main()
