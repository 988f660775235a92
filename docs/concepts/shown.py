"""Form of IR in the pages of concepts: the output of ``shardc opt``, with shorter types."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import mkdtemp

from shardc.cli import main

MESH = """\
"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["tensor", 2, "space"]]} : () -> ()
"""
FILE = Path(mkdtemp(), "step.mlir")
ROLE, GLOBAL = r'dist\.role = "\w+"', r"dist\.global_type = [^>]*>"
LEFT_OUT = re.compile(rf'{GLOBAL}, |{ROLE}, |, {ROLE}|, dist\.why = "annotated"')
TYPE = re.compile(r"!torch\.vtensor<\[([\d,]*)\],(\w+)>")
NOT_SHOWN = re.compile(r"torch\.constant|ListConstruct|^module|^}|^#map")


def opt(text: str, pipeline: str, *, omit: str = "^$") -> None:
    """Run passes as ``shardc opt`` does, and print the result without constants and lines like ``omit``.

    ``8x16xf32`` is printed for ``!torch.vtensor<[8,16],f32>``. An op is printed with its result's type only.
    """
    FILE.write_text(text)
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["opt", str(FILE), "--pipeline", pipeline]) == 0
    shown = TYPE.sub(_type, LEFT_OUT.sub("", out.getvalue()))
    for line in shown.splitlines():
        if not NOT_SHOWN.search(line) and not re.search(omit, line):
            print(_function(line[2:]) if "func.func" in line else _without_operand_types(line[2:]))


def _type(match: re.Match[str]) -> str:
    return "x".join([*filter(None, match[1].split(",")), match[2]])


def _without_operand_types(line: str) -> str:
    types, arrow, result = line.rpartition(" -> ")
    return f"{types.rpartition(' : ')[0]} : {result}" if arrow and " : " in types and result != "()" else line


def _function(line: str) -> str:
    """Return the first line of a function, broken before each argument and the results."""
    return re.sub(r"(?<=[(,]) ?(?=%arg\d+: )", "\n    ", line).replace(") -> (", ")\n    -> (")
