"""Lines of running programs."""

import sys

from shardc.runtime import source
from shardc.runtime.source import line_of


def program(lines: int) -> str:
    """A function that appends ``seen(frame)`` line by line, some of them in loops, branches and calls."""
    text = ["def run(seen, frame):"]
    for number in range(lines):
        text += {
            0: ["    for _ in range(2):", "        seen(frame())"],
            1: ["    if frame() is None:", "        pass", "    else: seen(frame())"],
            2: ["    seen(", "        frame(),", "    )"],
            3: ["", "    # a comment", "    seen(frame())"],
        }[number % 4]
    return "\n".join(text)


def test_the_running_line_is_that_of_python() -> None:
    names: dict[str, object] = {}
    exec(compile(program(200), "<lines>", "exec"), names)
    here, python = list[int](), list[int]()

    def frame() -> object:
        caller = sys._getframe(1)
        here.append(line_of(caller))
        python.append(caller.f_lineno)
        return caller

    run = names["run"]
    assert callable(run)
    run(lambda frame: None, frame)
    assert here == python
    assert len({*here}) > 150


def test_few_functions_are_kept() -> None:
    def seen() -> int:
        return line_of(sys._getframe(1))

    for number in range(3 * source._KEPT):
        names: dict[str, object] = {"seen": seen}
        exec(compile("\n" * number + "line = seen()", "<lines>", "exec"), names)
        assert names["line"] == number + 1
    assert len(source._tables) <= source._KEPT
