"""A page as one HTML file: a head that all pages share, and a body of its own."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from htagraph.reports.page.legend import color_rules
from htagraph.writers.output_file import write_text


def resource(name: str) -> str:
    """Text of a file next to this module."""
    return files("htagraph.reports.page").joinpath(name).read_text(encoding="utf-8")


def write_html(
    out: str | Path,
    body: str,
    *,
    title: str,
    style: str,
    **parts: str,
) -> Path:
    """Write a page, whole or not at all.

    Parameters
    ----------
    body : str
        Name of the file with what comes below the title.
    style : str
        CSS of this page.
    **parts : str
        HTML for the placeholders of the body.
    """
    text = Template(resource("head.html") + resource(body)).substitute(
        title=escape(title),
        style=f"{resource('page.css')}\n{color_rules()}\n{style}",
        **parts,
    )
    write_text(out, text)
    return Path(out)
