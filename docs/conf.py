"""Settings of the book: ``make docs`` builds ``docs/`` into ``out/book``, without network (decision 107)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import shardc

project = "shardc"
copyright = "the shardc authors; Apache-2.0 with LLVM exceptions"
version = release = shardc.__version__
html_title = "shardc"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["book.css"]
pygments_dark_style = "github-dark"  # Furo's underlines imported modules as if they were links

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["errors/*"]
"""Sources of ``docs/reference/errors``."""
suppress_warnings = ["config.cache"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent.parent / "out" / "book-cache")
nb_execution_raise_on_error = True
nb_execution_timeout = 1200
nb_merge_streams = True
os.environ["SHARDC_PROGRESS"] = "0"  # of kernels, too: a page does not depend on how fast a machine is
nb_output_stderr = "remove"  # progress, which depends on the machine, and warnings of other packages

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

ROOT = re.compile(r"\]\((?:docs/)?([^)#:]+)([)#])")
"""Pattern of a link in a page at the root of the repository."""
MOVED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "guide/": "guide/index.md",
         "decisions/": "decisions/index.md"}  # fmt: skip
"""Place in the book of each target of such links."""


def read_from_root(app: Sphinx, relative: Path, parent: str, content: list[str]) -> None:
    """Let links of README, CHANGELOG and CONTRIBUTING lead to pages of the book."""
    text = content[0].replace("[LICENSE](LICENSE)", "`LICENSE`")
    content[0] = ROOT.sub(lambda link: f"]({MOVED.get(link[1], link[1])}{link[2]}", text)


def setup(app: Sphinx) -> None:
    app.connect("include-read", read_from_root)
    for language in ("mlir", "csv"):
        app.add_lexer(language, TextLexer)
