"""How the site is built: ``sphinx-build -W -c docs . build/site`` in the root of the repository.

The root is the source, so that a link in a document leads to the same place in the repository and
in the site. The lists of links in ``docs/README.md`` are its navigation; the pages of the reference
are made from the package (``docs/reference.py``).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import reference  # noqa: E402  a file beside this one

project = "htagraph"
author = "The htagraph developers"
root_doc = "docs/README"
include_patterns = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**",
    "notebooks/*",
]
exclude_patterns = [".*", "**/.*", "build", "dist", "htagraph", "tests"]
extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc"]

myst_heading_anchors = 4
nb_execution_mode = "off"  # outputs are stored, and checked by tests/notebooks

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
default_role = "py:obj"  # what docstrings have in single backticks
maximum_signature_line_length = 88

html_theme = "furo"
html_title = "htagraph"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\)", re.MULTILINE)
_START = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/README.html">\n'


def _navigation(text: str) -> str:
    """Trees of pages, one for each section of a page of links; the reference is the last."""
    parts = _SECTION.split(text)
    trees = dict(zip(parts[1::2], map(_ENTRY.findall, parts[2::2]), strict=True))
    trees["Reference"] = [("", f"{reference.FOLDER}/{page}") for page in reference.SHOWN]
    return "\n".join(
        "\n".join(
            ["```{toctree}", ":hidden:", f":caption: {caption}", ""]
            + [f"{title} <{file}>" if title else file for title, file in entries]
            + ["```", ""]
        )
        for caption, entries in trees.items()
        if entries
    )


def _add_navigation(_app: Any, page: str, source: list[str]) -> None:  # noqa: ANN401  Sphinx's
    """Add the navigation to the page that lists all others."""
    if page == root_doc:
        source[0] += "\n" + _navigation(source[0])


def _add_start(app: Any, failure: Exception | None) -> None:  # noqa: ANN401  Sphinx's
    """Lead from the top of the site to its first page."""
    if failure is None:
        Path(app.outdir, "index.html").write_text(_START)


def setup(app: Any) -> None:  # noqa: ANN401  Sphinx's
    """Write the reference, and hook into the build."""
    reference.write(DOCS)
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_start)
