"""The page of a comparison: a waterfall of changes, in which falls do not look like rises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from htagraph.comparison.run_diff import RunDiff
from htagraph.reports.page.diff_page import write_diff_page
from tests.comparison.profiles import profile

MS = 1_000_000


class Bar(NamedTuple):
    """A bar of the waterfall; its ends are shares of the track."""

    name: str
    kind: str
    begin: float
    end: float
    value: str


_ROW = re.compile(
    r'<b>([^<]+)</b><div class="track"><u style="left:([-\d.]+)%"></u><i class="([^"]*)" '
    r'style="left:([\d.]+)%;width:([\d.]+)%[^>]*></i></div><span>([^<]+)</span>'
)


def bars_of(found: RunDiff, folder: Path) -> list[Bar]:
    """Bars of the waterfall, with ends as shares of the track right of the line of no change."""
    text = write_diff_page(folder / "diff.html", found).read_text("utf-8")
    made = []
    for name, zero, kind, left, width, value in _ROW.findall(text):
        low, high = float(left) - float(zero), float(left) + float(width) - float(zero)
        made.append(Bar(name, kind, *((high, low) if "fall" in kind else (low, high)), value))
    return made


def test_each_bar_begins_where_the_one_above_ends(tmp_path: Path) -> None:
    """30 ms more, then 20 ms less; 10 ms in all, from the line of no change. Falls are hatched."""
    before = profile({"compute": [30 * MS] * 5, "host": [50 * MS] * 5})
    after = profile({"compute": [60 * MS] * 5, "host": [30 * MS] * 5})

    assert bars_of(RunDiff(before, after), tmp_path) == [
        Bar("GPU compute", "", 0, 100, "▲ +30.0 ms"),
        Bar("CPU operators", "fall", 100, 33.333, "▼ -20.0 ms"),
        Bar("in all", "whole", 0, 33.333, "▲ +10.0 ms"),
    ]


def test_a_change_that_ends_below_none_is_left_of_the_line(tmp_path: Path) -> None:
    """20 ms less, then 10 ms more."""
    before = profile({"compute": [30 * MS] * 5, "host": [50 * MS] * 5})
    after = profile({"compute": [40 * MS] * 5, "host": [30 * MS] * 5})

    assert bars_of(RunDiff(before, after), tmp_path) == [
        Bar("CPU operators", "fall", 0, -100, "▼ -20.0 ms"),
        Bar("GPU compute", "", -100, -50, "▲ +10.0 ms"),
        Bar("in all", "fall whole", 0, -50, "▼ -10.0 ms"),
    ]


def test_the_verdict_is_the_first_line_below_the_names(tmp_path: Path) -> None:
    """Before what is compared, the bars, and what is folded."""
    run = profile({"compute": [30 * MS] * 5})
    text = write_diff_page(tmp_path / "diff.html", RunDiff(run, run)).read_text("utf-8")
    places = ("<h1>", 'class="lead"', 'class="facts"', 'class="bars"', 'class="section"')
    at = [text.index(place) for place in places]

    assert at == sorted(at)
