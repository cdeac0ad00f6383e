"""What would help, for people: each thing told once, in words."""

from __future__ import annotations

import htagraph as hg
from htagraph.reports.markdown import markdown_summary
from htagraph.synth import timeline


def demo(name: str) -> hg.Summary:
    trace = hg.load(hg.demo_trace(name))
    return hg.Summary.of(trace, trace.compile())


def test_what_one_can_do_is_listed_by_what_it_saves():
    """The fixes of the cards that are replayed, as they are advised, and parts twice as fast."""
    summary = demo("dataloader")
    found = summary.first_changes

    assert found["change"].tolist() == [
        "DataLoader.__next__ twice as fast",
        'Launch less: torch.compile(mode="reduce-overhead") captures each step as a CUDA graph',
        "ampere_sgemm_128x64_nn twice as fast",
    ]
    fix = summary.verdict.findings[1].fix
    assert (fix.do, fix.saves_ns) == (f"{found['change'][1]}.", found["saves_ns"][1])
    assert f"| {found['change'][0].replace('__', chr(92) + '_' + chr(92) + '_')} |" in (
        markdown_summary(summary)
    )


def test_what_one_can_do_saves_what_an_opportunity_saves():
    summary = demo("dataloader")
    every = summary.opportunities.set_index("change")["saves_ns"]

    assert summary.first_changes["saves_ns"][2] == every["scale('ampere_sgemm_128x64_nn', by=0.5)"]


def test_a_late_rank_is_listed_by_what_it_costs():
    """First of the job: no rank waits for it then."""
    summary = hg.JobSummary(hg.load_job(hg.demo_trace("job")), "job")
    first = summary.first_changes.iloc[0]

    assert first["change"] == "Rank 2 is late: if it kept up"
    assert first["saves_ns"] == summary.verdict.findings[0].cost_ns


def test_eight_changes_are_listed():
    """Of twelve kernels one after the other, each a twelfth of the run."""
    kernels = "".join(f"[k{n} <a{n}       ]" for n in range(12))
    launches = "".join(f"[launch >a{n}]" for n in range(12))
    drawing = f"cpu 1 |{launches}[sync @*]\nstream 7 |    {kernels}"
    trace = hg.Trace.from_events(timeline(drawing))

    assert len(hg.Summary(trace, trace.compile()).first_changes) == 8


def test_a_saving_below_one_percent_is_not_listed():
    assert demo("none").first_changes["saves_share"].min() >= 0.01


def test_nothing_is_predicted_where_nothing_is_judged():
    """An empty trace: no table."""
    trace = hg.Trace.from_events(timeline(""))
    summary = hg.Summary(trace, trace.compile())

    assert summary.first_changes.empty
    assert "What would help" not in markdown_summary(summary)
