"""Every block of Python and every command of the README, guides, tutorials and concepts runs in a test, or
``guides.NOT_RUN`` has the reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import guides
import pytest
import readme

PAGES = guides.pages()
DATA = {"text", "json", "yaml", "diff", "mlir", "csv", "{include}", "{toctree}"}
"""Languages of blocks that nobody runs."""
COMMAND = re.compile(r"(shardc|python|torchrun|accelerate|pip|make|git|sh|[A-Z_]+=\S+) ")
INDENTED = re.compile(r"(?<=\n\n)    \S.*")


def not_run(name: str) -> list[str]:
    """The blocks of Python and the commands of a page that no test runs."""
    found = list[str]()
    text = guides.text_of(name)
    for block in guides.blocks(text):
        if block.language == "sh":
            lines = readme.commands(f"```sh\n{block.text}```\n")
            found += [line for line in lines if not guides.runs(line)]
            continue
        if block.language == "python":
            runs = name in (guides.SCRIPTS if block.file else guides.MODELS)
        elif block.language == "{code-cell}":
            runs = guides.EXECUTED in text
        else:
            assert block.language in DATA, f"a block of {name} has the language {block.language!r}"
            runs = not COMMAND.match(block.text)
        found += [] if runs else [block.text]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_each_block_runs_or_has_a_reason(name: str) -> None:
    missing = [text for text in not_run(name) if not guides.reason(name, text)]
    assert not missing, f"no test runs these blocks of {name}; guides.py has the tables:\n" + "\n".join(
        missing
    )


@pytest.mark.parametrize("name", PAGES)
def test_blocks_have_fences(name: str) -> None:
    """Indented blocks have no language, so nobody knows whether they run."""
    text = re.sub(r"^```.*?^```$", "", guides.text_of(name), flags=re.MULTILINE | re.DOTALL)
    assert INDENTED.findall(text) == []


def test_tables_name_pages_and_blocks_that_there_are() -> None:
    named = {*guides.SCRIPTS, *guides.COMMANDS, *guides.MODELS, *guides.NOT_RUN}
    assert named <= {*PAGES}
    assert not {*guides.SCRIPTS} & {*guides.COMMANDS}, "their commands would run twice"
    for name, reasons in guides.NOT_RUN.items():
        found = [block.text for block in guides.blocks(guides.text_of(name)) if block.language != "sh"]
        found += readme.commands(guides.text_of(name))
        for start in reasons:
            assert any(text.startswith(start) for text in found), f"{name} has no block {start!r}"


@pytest.mark.parametrize("name", guides.SCRIPTS)
def test_a_module_reads_the_page_that_it_runs(name: str) -> None:
    text = (Path(__file__).parent / guides.SCRIPTS[name]).read_text()
    assert re.search(rf'"{name}(\.md)?"', text) or name == "README"
