"""A page as one HTML file: a head that all pages share, and a body of its own."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from htagraph.reports.page.legend import color_rules
from htagraph.writers.output_file import write_text

__all__ = ["resource", "write_html"]


def resource(name: str) -> str:
    """Text of a file next to this module."""
    return files("htagraph.reports.page").joinpath(name).read_text(encoding="utf-8")


def write_html(
    out: str | Path,
    body: str,
    *,
    title: str,
    links: dict[str, str],
    style: str,
    legend: str = "",
    **parts: str,
) -> Path:
    """Write a page, whole or not at all.

    Parameters
    ----------
    body : str
        Name of the file with what comes below the title.
    links : dict of str to str
        Titles of the sections by their anchors.
    style, legend : str
        CSS and legend of this page.
    **parts : str
        HTML for the placeholders of the body.
    """
    anchors = "\n".join(f'<a href="#{name}">{escape(said)}</a>' for name, said in links.items())
    text = Template(resource("head.html") + resource(body)).substitute(
        title=escape(title),
        nav=Template(resource("nav.html")).substitute(links=anchors, legend=legend),
        style=f"{resource('page.css')}\n{color_rules()}\n{style}",
        **parts,
    )
    write_text(out, text)
    return Path(out)
