"""What the package exports, and under which version and licences."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import htagraph
import htagraph as hg
from htagraph import Trace
from htagraph.findings.verdict import Verdict
from htagraph.model.columns import SCHEMAS, heading
from htagraph.model.schema import Quantity
from htagraph.synth import timeline

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(htagraph.__path__, "htagraph.")
]


def test_public_names_are_sorted_and_each_has_a_home():
    """Those exported, those that `dir` lists, and those that can be asked for."""
    homes = {**htagraph._HOMES, **htagraph._ROOMS}

    assert htagraph.__all__ == sorted(htagraph.__all__) == dir(htagraph)
    assert sorted(homes) == htagraph.__all__


@pytest.mark.parametrize("name", htagraph.__all__)
def test_a_public_name_is_there_when_it_is_asked_for(name):
    """What it stands for says that it is public."""
    value = getattr(htagraph, name)
    home = value if isinstance(value, ModuleType) else importlib.import_module(value.__module__)

    assert isinstance(value, ModuleType) or getattr(home, name) is value


def test_a_name_that_is_not_there_is_an_error_like_any_other():
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        htagraph.nonsense  # noqa: B018


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_module_says_what_it_owns(module):
    """The first line of its docstring."""
    assert (module.__doc__ or "").strip() or not inspect.getsource(module).strip()


def test_errors_inherit_what_a_stranger_would_catch():
    """Every error is one of ours and a builtin one."""
    kinds = [
        getattr(htagraph.errors, name) for name in htagraph.errors.__all__ if name.endswith("Error")
    ]
    ours = htagraph.errors.HTAGraphError
    builtin = (ValueError, KeyError, RuntimeError, OSError)

    assert all(issubclass(kind, ours) for kind in kinds)
    assert [
        kind.__name__ for kind in kinds if kind is not ours and not issubclass(kind, builtin)
    ] == []


def test_the_installed_version_is_that_of_the_package():
    """Metadata are made from it when the package is built; install again where this fails."""
    assert version("htagraph") == hg.__version__


_PAGE = files("htagraph.reports.page")
_SCRIPT = _PAGE.joinpath("plotly-cartesian.min.js").read_text("utf-8")
_LICENSES = _PAGE.joinpath("plotly-LICENSE").read_text("utf-8")
_NAMED = re.findall(r"^(\S+) ([\d.]+) \(([\w.-]+)\)$", _LICENSES, re.MULTILINE)
"""Package, version and license. plotly's own build that is not minified, ``plotly-cartesian.js``
of the same release, names in comments which files of which packages it consists of."""


def test_each_package_in_the_bundled_script_has_its_license():
    """Of this version of plotly.js; some packages name themselves in the script, others cannot."""
    version = re.search(r"plotly\.js \(cartesian - minified\) v([\d.]+)", _SCRIPT)
    said = _SCRIPT.partition("/*! Bundled license information:")[2]
    itself = set(re.findall(r"^((?:@[\w-]+/)?[\w.-]+)/\S+:$", said, re.MULTILINE))
    names = [name for name, _, _ in _NAMED]

    assert version is not None
    assert ("plotly.js", version[1], "MIT") in _NAMED
    assert {"ieee754", "polybooljs", "native-promise-only"} <= itself <= set(names)
    assert len(names) == len(set(names)) == 72
    assert _LICENSES.count("Copyright") >= len(names)


def test_the_package_carries_them_and_names_each_license():
    """`.ci/package` asks the same of the wheel."""
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    own = ["LICENSE", "htagraph/reports/page/plotly-LICENSE"]
    licenses = {"Apache-2.0", *(one for _, _, one in _NAMED)}

    assert all((root / file).is_file() for file in own)
    assert all(any(fnmatch(file, glob) for glob in project["license-files"]) for file in own)
    assert set(project["license"].split(" AND ")) == licenses


COLUMNS = [
    (schema, name, column) for schema, of in SCHEMAS.items() for name, column in of.columns.items()
]
EMPTY = Trace.from_events(timeline(""))
GRAPH = EMPTY.compile()
PATH = GRAPH.critical_path()

ANSWERS = {
    "EVENTS": lambda: GRAPH.events,
    "EDGES": lambda: GRAPH.edges,
    "STEPS": lambda: GRAPH.steps,
    "SEGMENTS": lambda: PATH.segments,
    "BREAKDOWN": PATH.breakdown,
    "REPAIRS": lambda: EMPTY.repairs,
}


UNITS = {
    Quantity.INSTANT: ("ns",),
    Quantity.DURATION: ("ns",),
    Quantity.SHARE: ("share",),
    Quantity.FLAG: ("flag",),
    Quantity.TEXT: ("text",),
}
DTYPES = {
    Quantity.INSTANT: ("int64",),
    Quantity.DURATION: ("int64", "float64"),
    Quantity.SHARE: ("float64",),
    Quantity.COUNT: ("int64",),
    Quantity.NUMBER: ("int64", "float64"),
    Quantity.IDENTIFIER: ("int64", "object"),
    Quantity.FLAG: ("bool",),
    Quantity.LABEL: ("category", "object"),
    Quantity.NAME: ("object",),
    Quantity.TEXT: ("object",),
}


def test_every_column_has_a_meaning():
    """The reference and the page show it."""
    assert [row[:2] for row in COLUMNS if not row[2].meaning.strip()] == []


def test_units_and_dtypes_are_those_of_the_quantity():
    assert [
        row
        for row in COLUMNS
        if row[2].unit not in UNITS.get(row[2].quantity, (row[2].unit,))
        or row[2].dtype not in DTYPES[row[2].quantity]
    ] == []


def test_the_end_of_a_name_is_its_unit():
    """`_ns` is time, `_share` a part of 1, `n_` a count, `is_` a flag."""
    ends = [(name.endswith("_ns"), column.unit == "ns") for _, name, column in COLUMNS]
    assert [COLUMNS[at] for at, (named, is_time) in enumerate(ends) if named != is_time] == []
    assert {c.quantity for _, name, c in COLUMNS if name.endswith("_share")} == {Quantity.SHARE}
    assert {c.quantity for _, name, c in COLUMNS if name.startswith("is_")} == {Quantity.FLAG}
    counts = {c.quantity for _, name, c in COLUMNS if name.startswith("n_") and name != "n_delta"}
    assert counts == {Quantity.COUNT}


def test_a_name_is_one_quantity_in_all_schemas():
    """Derived tables look a column up by its name; words apart from numbers, and categories."""
    known = {}
    for schema, name, column in COLUMNS:
        key = (name, column.dtype == "object", column.dtype == "category")
        first = known.setdefault(key, (schema, column.quantity))
        assert column.quantity == first[1], f"{name} of {schema}, {name} of {first[0]}"


def test_a_heading_is_given_in_every_schema_with_the_column():
    assert [
        (schema, name)
        for schema, name, column in COLUMNS
        if column.heading not in ("", heading(name))
    ] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_has_its_own_name_and_shows_its_own_columns(name):
    schema = SCHEMAS[name]

    assert schema.name == name
    for first in (schema.first, *schema.first_by.values()):
        assert [column for column in first.split() if column not in schema.columns] == []


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_on_an_empty_trace_have_the_schema(name):
    """Same columns, same dtypes, same order; questions are in tests/laws/test_query_laws.py."""
    frame = ANSWERS[name]()

    assert {key: str(dtype) for key, dtype in frame.dtypes.items()} == {
        key: column.dtype for key, column in SCHEMAS[name].columns.items()
    }


_LINES, _CHARACTERS = 14, 1_500
"""Chosen: what one sees at once. A verdict is a text, of three findings."""


def objects() -> Iterator[tuple[str, object]]:
    """The objects that users hold, and what these consist of."""
    trace = hg.load(hg.demo_trace("dataloader"))
    graph, job = trace.compile(), hg.load_job(hg.demo_trace("job"))
    path, kernels = graph.critical_path(), graph.select(kind="kernel")
    changes = (hg.scale("*gemm*", by=0.5), hg.prefetch(), hg.remove(hg.code("train.py(3): f")))
    held = {
        "trace": trace,
        "graph": graph,
        "path": path,
        "finding": graph.verdict().findings[0],
        "selection": kernels,
        "scenario": hg.what_if(graph, changes[0]),
        "job": job,
        "job path": job.critical_path(),
        "job scenario": hg.what_if(job, hg.equalise()),
        "summary": hg.Summary(trace, graph),
        "job summary": hg.JobSummary(job),
        "graph diff": hg.diff(graph, graph),
        "run diff": hg.diff(*map(hg.run_profile, (graph, graph))),
        "profile": hg.run_profile(graph),
        **{str(change): change for change in changes},
    }
    for name, one in held.items():
        yield name, one
        for part in dir(type(one)):
            kind = type(getattr(type(one), part)).__name__
            if part[0] != "_" and kind in ("property", "cached_property"):
                yield f"{name}.{part}", getattr(one, part)
        for part in getattr(type(one), "__dataclass_fields__", ()):
            yield f"{name}.{part}", getattr(one, part)


@pytest.mark.slow
def test_reprs_are_short() -> None:
    """Of frames, a head, ten rows and what is not shown; prose in them may fold."""
    long = [
        name
        for name, one in objects()
        if type(one).__module__.startswith("htagraph")
        and not isinstance(one, Verdict | hg.Report)
        and "consequence" not in getattr(one, "columns", ())
        and (repr(one).count("\n") >= _LINES or len(repr(one)) > _CHARACTERS)
    ]

    assert long == []
