"""One answer: a figure has one value on all surfaces, of twelve traces and seven jobs."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pandas as pd
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import htagraph as hg
from htagraph.agents.server import Desk
from htagraph.agents.target import Root
from htagraph.cli.inputs import Source
from htagraph.cli.main import main
from htagraph.cli.view import _analyzed
from htagraph.findings.verdict import percent
from htagraph.model.units import human_duration
from htagraph.run.compiled import LoadOptions
from htagraph.synth.demo_traces import demo_trace
from tests.real_traces import cases, located

Figures = dict[str, object]
Answers = Iterator[tuple[str, Figures]]

_DEMOS = ("dataloader", "none", "serving", "job")
_FAST = ("captures/single/recompile.pt.trace.json.gz",)  # one step is an outlier
_SLOW = (
    *(f"captures/single/{name}.pt.trace.json.gz" for name in ("baseline", "loader0", "gc")),
    *("captures/jobs/ddp_sleep_4", "captures/pipelines/pp4_1f1b_slow"),
    "captures/pipelines/moe_hot2",
    "tracelens/sglang_Qwen3-8B_decode.json.gz",  # an opening of 463 ms before 10 ms
    "tracelens/resnet_act_checkpoint.json.gz",  # an opening, and steps that warm up
    "hta/trace_diff/control/control.json.gz",
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",  # no steps
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    *("torchrec/sleep_on_rank2", "torchrec/resnet18", "megatron-tp2"),
)

_A_STEP = re.compile(r"([\d.,]+ \w+) a (typical )?step ")
_ON_TERMINAL = re.compile(r"^\d\. (.+?) +[█-▏]* +(?:together )?costs? (<?\d+%)$", re.MULTILINE)
_IN_MARKDOWN = re.compile(r"^\d\. \*\*(.+?)\*\*: (?:together )?costs? (<?\d+%)", re.MULTILINE)
_IN_PERFETTO = re.compile(r"^(.+), costs (<?\d+%)$", re.MULTILINE)
_ON_A_CARD = re.compile(r'data-value="(\d+)".*?<strong>(.+?)</strong></p><div><h3>\d\. (.+?)</h3>')
_ON_A_TILE = re.compile(r'data-value="([^"]+)"><span>([^<]+)</span><strong>([^<]+)')
_IN_ONE_LINE = re.compile(r" · (.+?): (?:together )?costs? (<?\d+%)")
_PATH_IN_SQL = "SELECT sum(dur_ns) AS dur_ns FROM segments"
_PATH = re.compile(r": ([\d.,]+ \w+) in [\d,]+ segments?")


class Run(NamedTuple):
    """A trace or a job, and a folder to write into."""

    path: Path
    folder: Path


def printed(*args: object, ends: Collection[int] = (0,)) -> str:
    """What a command answers, that may end with some exit codes."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in (*args, "--quiet")])
    assert (ended.value.code or 0) in ends
    return out.getvalue()


def window_of(start_ns: int, dur_ns: int) -> Figures:
    """Where a window is, and how long."""
    return {"start": start_ns, "end": start_ns + dur_ns, **length_of(dur_ns)}


def length_of(dur_ns: int) -> Figures:
    """How long a window is, as a number and in words."""
    return {"window": dur_ns, "window in words": human_duration(dur_ns)}


def steps_of(n_steps: int, step_ns: float) -> Figures:
    """Of a window that is made of steps, how many and their mean length."""
    if not n_steps:
        return {}
    return {
        "steps": n_steps,
        "step time": round(step_ns),
        "step time in words": human_duration(step_ns),
    }


def cost_of(title: str, cost_ns: int | None, window_ns: int) -> Figures:
    """What a cause costs, as a number and in words."""
    if cost_ns is None:
        return {}
    return {f"cost of {title}": cost_ns, f"{title} costs": percent(cost_ns, window_ns)}


def device_figures(rows: Iterable[Mapping[str, Any]]) -> Figures:
    """What devices do on average, and in which window; each rank of a job has its own."""
    frame = pd.DataFrame(rows)
    if frame.empty:
        return {}
    parts = {"GPU idle": "idle_ns", "exposed communication": "communication_ns"}
    found: Figures = {
        name: share(frame[part].sum() / frame["window_ns"].sum()) for name, part in parts.items()
    }
    if "rank" not in frame:
        return found | length_of(int(frame["window_ns"].iloc[0]))
    return found | {
        f"window of rank {rank}": int(window_ns)
        for rank, window_ns in zip(frame["rank"], frame["window_ns"], strict=True)
    }


def typical_figures(step_ns: float | None, idle: float | None, exposed: float | None) -> Figures:
    """What typical steps are like: outliers are left out, so these are other figures."""
    found: Figures = {} if step_ns is None else {"typical step time": round(step_ns)}
    parts = {"GPU idle": idle, "exposed communication": exposed}
    known = {name: part for name, part in parts.items() if part is not None}
    return found | {f"{name} in typical steps": share(part) for name, part in known.items()}


def share(value: float) -> float:
    """A share to nine digits."""
    return round(float(value), 9)


def step_figures(rows: Iterable[Mapping[str, Any]], start_ns: int, end_ns: int) -> Figures:
    """The steps of a trace, if they tile a window; of ranks, their own times are other figures."""
    frame = pd.DataFrame(rows)
    if frame.empty or "rank" in frame:
        return {}
    steps = frame.drop_duplicates("step")
    ends_ns = steps["start_ns"] + steps["dur_ns"]
    is_tiled = steps["start_ns"].min() == start_ns and ends_ns.max() == end_ns
    return steps_of(len(steps), steps["dur_ns"].mean()) if is_tiled and len(steps) > 1 else {}


def told(text: str) -> Figures:
    """The step time that a sentence tells; one of typical steps is another figure."""
    found = _A_STEP.search(" ".join(text.split()))
    return {f"{found[2] or ''}step time in words": found[1]} if found else {}


def costs_in(pattern: re.Pattern[str], text: str) -> Figures:
    """Costs of causes, as titles of cards tell them."""
    return {f"{title} costs": cost for title, cost in pattern.findall(text)}


def page_figures(page: str) -> Figures:
    """Tiles and cards of a page."""
    figures: Figures = {}
    for number, name, words in _ON_A_TILE.findall(page):
        match name:
            case "GPU busy":
                figures["GPU idle"] = share(1 - float(number))
            case "exposed communication":
                figures[name] = share(float(number))
            case "step time":
                figures |= {name: round(float(number)), f"{name} in words": words}
            case "length":
                figures |= {"window": int(number), "window in words": words}
    for cost_ns, cost, title in _ON_A_CARD.findall(page):
        figures |= {f"cost of {unescape(title)}": int(cost_ns)}
        figures |= {f"{unescape(title)} costs": unescape(cost)}
    return figures


def perfetto_figures(file: Path) -> Figures:
    """Length of the track of findings, and the costs in its titles."""
    packets = Trace.FromString(file.read_bytes()).packet
    tracks = (one.track_descriptor for one in packets)
    (track,) = (one.uuid for one in tracks if re.fullmatch(r"Findings(, rank \d+)?", one.name))
    names = {entry.iid: entry.name for one in packets for entry in one.interned_data.event_names}
    drawn = [one for one in packets if one.track_event.track_uuid == track]
    ends_ns = [one.timestamp for one in drawn]
    titles = "\n".join({names.get(one.track_event.name_iid, "") for one in drawn})
    return length_of(max(ends_ns) - min(ends_ns)) | costs_in(_IN_PERFETTO, titles)


def report(run: Run) -> Answers:
    """All that `htagraph report` prints and writes."""
    out, file = run.folder / "report", run.folder / "report.json"
    text = printed("report", run.path, "--out", out, "--json", file)
    document = json.loads(file.read_text())
    window, verdict = document["window"], document["verdict"]
    figures = window_of(window["start_ns"], verdict["window_ns"])
    figures |= {"end": window["end_ns"], "window": window["dur_ns"]}
    figures |= steps_of(window["n_steps"], window["step_ns"]) | told(verdict["headline"])
    for item in verdict["items"]:
        figures |= cost_of(item["title"], item["cost_ns"], verdict["window_ns"])
    yield "JSON", figures | device_figures(document.get("devices", []))
    yield "terminal", costs_in(_ON_TERMINAL, text) | told(text)
    markdown = re.sub(r"\\(.)", r"\1", next(out.rglob("*.md")).read_text())
    yield "Markdown", costs_in(_IN_MARKDOWN, markdown) | told(markdown)
    yield "page", page_figures(next(out.rglob("*.html")).read_text())
    yield "Perfetto", perfetto_figures(next(out.rglob("*.pftrace")))
    line = printed("report", run.path, "--line")
    yield "line", costs_in(_IN_ONE_LINE, line) | told(line.replace(" · ", " "))
    block = re.sub(r"\\(.)", r"\1", printed("report", run.path, "--block"))
    yield "block", costs_in(_IN_MARKDOWN, block) | told(block)
    profile = hg.RunProfile.read(file)
    yield (
        "baseline",
        typical_figures(
            profile.typical_step_ns if profile.unit == "step" else None,
            profile.share("device", "idle"),
            profile.share("device", "communication"),
        ),
    )


def commands(run: Run) -> Answers:
    """The other verbs of the command line, and the trace that `view` serves."""
    path = json.loads(printed("path", run.path, "-f", "json"))
    found = _PATH.search(printed("path", run.path))
    assert found
    yield "path", {"window": sum(row["dur_ns"] for row in path), "window in words": found[1]}
    if find_spec("duckdb"):
        (row,) = json.loads(printed("sql", run.path, _PATH_IN_SQL, "-f", "json"))
        yield "sql", {"window": row["dur_ns"]}
    devices = json.loads(printed("ask", "temporal_breakdown", run.path, "-f", "json"))
    yield "ask temporal_breakdown", device_figures(devices)
    yield "what-if", length_of(json.loads(printed("what-if", run.path, "--json", "-"))["before_ns"])
    diff = json.loads(printed("diff", run.path, run.path, "--what", "all"))
    figures = told(diff["verdict"])
    if figures:  # not of a part of steps that vary, nor of a window
        figures["typical step time"] = diff["before_ns"]
    yield "diff", figures
    limits = ("--max-step", "1000s", "--max-idle", "100%", "--max-exposed", "100%")
    check = json.loads(printed("check", run.path, *limits, "-f", "json", ends=(0, 1)))
    value = {one["limit"]: one["value"] for one in check["limits"]}
    yield "check", typical_figures(value["max-step"], value["max-idle"], value["max-exposed"])
    file, *_ = _analyzed(Source.of([run.path]), "", "", run.folder, LoadOptions())
    yield "view", perfetto_figures(file)


def agents(run: Run) -> Answers:
    """The tools of `htagraph mcp`."""
    desk = Desk(Root.of(run.path.parent))

    def ask(tool: str, **options: object) -> Any:
        asked = {"path": run.path.name, "max_tokens": 20_000, **options}
        text, is_error = desk.answer(tool, asked, lambda _: None, Event())
        assert not is_error, text
        return json.loads(text)

    verdict = ask("verdict")
    figures = _agents_window(verdict) | told(verdict["headline"])
    figures |= {"step time": verdict["step_ns"]} if "step_ns" in verdict else {}
    for card in verdict.get("cards", []):
        figures |= cost_of(card["title"], card.get("cost_ns"), verdict["window"]["dur_ns"])
    yield "tool verdict", figures
    for tool in ("path", "what_if"):
        yield f"tool {tool}", _agents_window(ask(tool))
    if find_spec("duckdb"):
        yield "tool sql", {"window": ask("sql", query=_PATH_IN_SQL)["rows"]["rows"][0][0]}
    devices = ask("ask", question="temporal_breakdown").get("rows", {"columns": [], "rows": []})
    rows = [dict(zip(devices["columns"], row, strict=True)) for row in devices["rows"]]
    yield "tool ask", device_figures(rows)


def _agents_window(answer: Mapping[str, Any]) -> Figures:
    """The window that a tool answers for."""
    window = answer["window"]
    return window_of(window["start_ns"], window["dur_ns"]) | {"window in words": window["dur"]}


def python(run: Run) -> Answers:
    """The same in Python."""
    found = hg.load_job(run.path) if run.path.is_dir() else hg.load(run.path).compile()
    path, verdict = found.critical_path(), found.verdict()
    figures = window_of(path.start_ns, path.dur_ns) | {"end": path.end_ns}
    yield "CriticalPath", figures | steps_of(path.n_steps, path.step_ns)
    figures = length_of(verdict.dur_ns) | steps_of(verdict.n_steps, verdict.step_ns)
    for finding in verdict.findings:
        figures |= cost_of(finding.title, finding.cost_ns, verdict.dur_ns)
    yield "Verdict", figures | told(verdict.headline)
    window = hg.what_if(found).rehearsal.window
    yield "Scenario", window_of(window.start_ns, window.dur_ns)
    yield "temporal_breakdown", device_figures(found.temporal_breakdown().to_dict("records"))
    if isinstance(found, hg.Job):
        windows = {f"window of rank {rank}": found[rank].dur_ns for rank in found}
        yield "graphs of ranks", windows
        return
    steps = found.step_times().to_dict("records")
    yield "step_times", step_figures(steps, path.start_ns, path.end_ns)


def values_by_surface(run: Run) -> dict[str, dict[object, list[str]]]:
    """The values of each figure, with the surfaces that give them."""
    found: dict[str, dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))
    for surfaces in (report, commands, agents, python):
        for surface, figures in surfaces(run):
            for name, value in figures.items():
                found[name][value].append(surface)
    return found


_SLOW_RUNS = [one._replace(marks=[*one.marks, pytest.mark.slow]) for one in cases(_SLOW)]


@pytest.mark.some(1)
@pytest.mark.parametrize("name", [*_DEMOS, *cases(_FAST), *_SLOW_RUNS])
def test_a_figure_has_one_value_on_all_surfaces(name: str, tmp_path: Path) -> None:
    path = demo_trace(name) if name in _DEMOS else located(name)
    found = values_by_surface(Run(path, tmp_path))

    assert {name: dict(values) for name, values in found.items() if len(values) > 1} == {}
    surfaces = {name: sum(map(len, values.values())) for name, values in found.items()}
    assert surfaces["window"] >= 9
    assert surfaces["start"] >= 4
