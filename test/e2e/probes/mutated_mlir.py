"""MLIR files of ``test/filecheck`` with tokens and lines changed, and the passes that their tests run.

python test/e2e/probes/mutated_mlir.py 0 2000     # tries mutants 0 to 1999, and prints those that end badly
"""

from __future__ import annotations

import random
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from isolated import Outcome, outcomes

from shardc.commands import opt  # noqa: F401  (imported before a fork)

FILES = Path(__file__).resolve().parents[2] / "filecheck"
TOKEN = re.compile(r"[%@#!]?[\w.]+|\"[^\"]*\"|->|[^\w\s]")
ODD = (
    "0",
    "-1",
    "3",
    "4611686018427387904",
    "18446744073709551616",
    "?",
    "f64",
    "si64",
    "i1",
    '""',
    "[]",
    "{}",
)
"""What a token is replaced by, besides other tokens of its file."""
_RUN = re.compile(r"// RUN: shardc-opt (.*?)\s*(?:%s|< %s)")


@dataclass(frozen=True)
class Part:
    """A part of a file between ``// -----`` lines, and the flags of a line that runs it."""

    file: Path
    text: str
    flags: tuple[str, ...]


@cache
def parts() -> list[Part]:
    """All parts of all files that a test runs, with each of the test's lines."""
    found = []
    for file in sorted(FILES.rglob("*.mlir")):
        text = file.read_text()
        runs = {tuple(shlex.split(match)) for match in _RUN.findall(text)}
        pieces = re.split(r"^// -----.*$", text, flags=re.MULTILINE)
        flags = [tuple(f for f in run if f != "--split-input-file") for run in sorted(runs)]
        found += [Part(file, piece, f) for piece in pieces for f in flags if "func.func" in piece]
    return found


def mutant(number: int) -> tuple[Part, str]:
    """The part that a number stands for, and its text with one to three changes."""
    draw = random.Random(number)
    part = draw.choice(parts())
    text = "\n".join(line for line in part.text.split("\n") if not line.lstrip().startswith("//"))
    for _ in range(draw.randint(1, 3)):
        text = draw.choice((_other_token, _other_token, _everywhere, _everywhere, _other_line))(text, draw)
    return part, text


def _other_token(text: str, draw: random.Random) -> str:
    """One token replaced by another of the text or an odd one, or left out."""
    tokens = list(TOKEN.finditer(text))
    if not tokens:
        return text
    chosen = draw.choice(tokens)
    return text[: chosen.start()] + _another(chosen.group(), tokens, draw) + text[chosen.end() :]


def _everywhere(text: str, draw: random.Random) -> str:
    """A number, name or type replaced wherever it stands, so that types still agree with one another."""
    tokens = [t for t in TOKEN.finditer(text) if t.group()[0].isalnum() or t.group()[0] == '"']
    if not tokens:
        return text
    old = draw.choice(tokens).group()
    new = _another(old, tokens, draw)
    return TOKEN.sub(lambda token: new if token.group() == old else token.group(), text)


def _another(old: str, tokens: Sequence[re.Match[str]], draw: random.Random) -> str:
    kind = draw.random()
    alike = [t.group() for t in tokens if t.group()[:1].isdigit() == old[:1].isdigit()]
    return draw.choice(alike) if kind < 0.5 else draw.choice(ODD) if kind < 0.9 else ""


def _other_line(text: str, draw: random.Random) -> str:
    """One line left out, doubled, or put where another is."""
    lines = text.split("\n")
    at, other, kind = draw.randrange(len(lines)), draw.randrange(len(lines)), draw.randrange(3)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[at])
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def tried(numbers: Sequence[int], folder: Path) -> list[Outcome]:
    """What ``shardc opt`` makes of mutants, in order; their files are in ``folder`` by number."""
    commands = []
    for number in numbers:
        part, text = mutant(number)
        path = folder / f"{number}.mlir"
        path.write_text(text)
        commands.append(["opt", *part.flags, str(path)])
    return outcomes(commands)


def described(number: int, outcome: Outcome) -> str:
    """A mutant that ended badly: what to run again, and how it ended."""
    part, _ = mutant(number)
    return f"mutant {number} of {part.file.name}, shardc opt {' '.join(part.flags)}: {outcome.problem}"


def main() -> int:
    numbers = range(int(sys.argv[1]), int(sys.argv[2]))
    folder = Path(tempfile.mkdtemp(prefix="shardc-mutants-"))
    found = tried(numbers, folder)
    bad = [described(n, o) for n, o in zip(numbers, found, strict=True) if o.problem]
    print("\n".join(bad))
    codes = Counter(outcome.code for outcome in found)
    print(
        f"{len(found)} mutants in {folder}; by exit code {dict(sorted(codes.items()))}; {len(bad)} end badly"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
