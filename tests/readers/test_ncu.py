"""Tables of Nsight Compute: which kernel a launch is, units, and what does not match."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from htagraph import Trace, TraceGraph
from htagraph.errors import TraceFormatError
from htagraph.model.events import EventTable
from htagraph.model.recording import Attachment, Recording
from htagraph.readers.beside import with_beside
from htagraph.synth import timeline

NAMES = {
    "fill": "void at::native::(anonymous namespace)::fill<4, std::array<char*, 1>>(int, float)",
    "gemm": "ampere_sgemm_128x64_tn",
    "wide": "ampere_sgemm_128x64_tn",
}
STEP = "[fill  ][gemm      ][wide            ]"
DRAWING = f"stream 7 |{STEP} {STEP}"
BLOCKS = {"fill": 1, "gemm": 8, "wide": 16}
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    '"Block Size","Grid Size","Device","CC"'
)
RAW = (
    "==PROF== Connected to process 7 (/usr/bin/python3)\n"
    "loss: 0.3, done\n"
    f'{HEADER},"dram__bytes.sum","gpu__time_duration.sum","sm__throughput.avg.pct"\n'
    '"","","","","","","","","","","","Kbyte","usecond","%"\n'
    '"0","7","python","host","fill(int, float)","1","7","(1, 1, 1)","(1, 1, 1)","0","8.0",'
    '"1,024.5","16","1.5"\n'
    '"1","7","python","host","ampere_sgemm_128x64_tn","1","7","(1, 1, 1)","(8, 8, 8)","0","8.0",'
    '"2","24","n/a"\n'
    '"2","7","python","host","ampere_sgemm_128x64_tn","1","7","(1, 1, 1)","(16, 16, 16)","0",'
    '"8.0","3","36","90"\n'
    "==PROF== Disconnected from process 7\n"
)
DETAILS = (
    f'{HEADER},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"\n'
    '"0","7","python","host","ampere_sgemm_128x64_tn","1","7","(1, 1, 1)","(16, 16, 16)","0",'
    '"8.0","GPU Speed Of Light Throughput","Memory Throughput","%","14.26",\n'
    '"0","7","python","host","ampere_sgemm_128x64_tn","1","7","(1, 1, 1)","(16, 16, 16)","0",'
    '"8.0","Command line profiler metrics","dram__bytes.sum.per_second","Gbyte/second","1.5",""\n'
    '"0","7","python","host","ampere_sgemm_128x64_tn","1","7","(1, 1, 1)","(16, 16, 16)","0",'
    '"8.0","SpeedOfLight","","","","SOLBottleneck"\n'
)


def _drawn(drawing: str = DRAWING, *, sizes: bool = True) -> EventTable:
    drawn = [name for name in NAMES if name in drawing]
    columns = {
        **{f"grid_{axis}": {name: BLOCKS[name] for name in drawn} for axis in "xyz"},
        **{f"block_{axis}": dict.fromkeys(drawn, 1) for axis in "xyz"},
    }
    names = {name: NAMES[name] for name in drawn}
    return timeline(drawing, names=names, columns=columns if sizes else None)


def _attached(tmp_path: Path, text: str, events: EventTable) -> tuple[Recording, Attachment]:
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    found = with_beside(Recording(events), [path])
    return found, found.attached[-1]


def _column(found: Recording, metric: str) -> list[tuple[int, float]]:
    """Kernels, in order of time, that have a metric, and its value."""
    column = found.events.columns[f"ncu.{metric}"]
    return list(zip(column.event.tolist(), column.value.tolist(), strict=True))


def test_launches_are_found_by_name_and_order_and_values_are_in_base_units(tmp_path):
    """Three launches of the first of two equal steps: bytes, and nanoseconds."""
    found, said = _attached(tmp_path, RAW, _drawn())

    assert _column(found, "dram__bytes.sum") == [(0, 1_024_500), (1, 2_000), (2, 3_000)]
    assert _column(found, "gpu__time_duration.sum") == [(0, 16_000), (1, 24_000), (2, 36_000)]
    assert _column(found, "sm__throughput.avg.pct") == [(0, 1.5), (2, 90)]
    assert (said.instrument, said.n, said.n_matched) == ("Nsight Compute", 3, 3)
    assert said.detail == (
        "as one run of launches; the first of 2 that match; kernels took 2.00 times as long "
        "as in the trace while they were measured (median)"
    )
    assert found.repairs == ()


def test_a_launch_of_another_size_is_another_kernel(tmp_path):
    """The measured run used another batch size: the name alone is no match."""
    text = RAW.replace('"(8, 8, 8)"', '"(9, 9, 9)"')
    found, said = _attached(tmp_path, text, _drawn())

    assert [event for event, _ in _column(found, "dram__bytes.sum")] == [0, 2]
    assert "1 not found" in said.detail


def test_where_orders_differ_the_nth_of_a_name_and_size_is_the_nth(tmp_path):
    """Streams ran in another order while kernels were measured."""
    lines = RAW.splitlines()
    lines[4:7] = lines[6:3:-1]
    found, said = _attached(tmp_path, "\n".join(lines), _drawn())

    assert _column(found, "dram__bytes.sum") == [(0, 1_024_500), (1, 2_000), (2, 3_000)]
    assert said.detail.startswith("the n-th of a name, grid and block as the n-th")


def test_without_sizes_a_name_that_is_more_frequent_on_one_side_is_not_matched(tmp_path):
    """In another order: both have two fills, but one has a single gemm and the other four."""
    fill, gemm, _ = RAW.splitlines()[4:7]
    lines = [*RAW.splitlines()[:4], fill, gemm, fill]
    found, said = _attached(tmp_path, "\n".join(lines), _drawn(sizes=False))

    assert [event for event, _ in _column(found, "dram__bytes.sum")] == [0, 3]
    assert "1 not found" in said.detail


def test_a_part_of_a_long_program_is_found_in_what_was_measured_of_all(tmp_path):
    """The tool measured two steps, the trace has the second half of one."""
    rows = RAW.splitlines()[4:7]
    events = _drawn("stream 7 |[gemm      ][wide            ]")
    found, said = _attached(tmp_path, "\n".join([*RAW.splitlines()[:4], *rows, *rows]), events)

    assert _column(found, "dram__bytes.sum") == [(0, 2_000), (1, 3_000)]
    assert said.detail.startswith("as one run of launches; the first of 2 that match; 4 not found")


def test_the_details_page_has_a_row_for_each_metric(tmp_path):
    """Labels are prefixed by their section, rates are per second; rules are no metrics."""
    found, said = _attached(tmp_path, DETAILS, _drawn())

    assert _column(found, "GPU Speed Of Light Throughput: Memory Throughput") == [(2, 14.26)]
    assert _column(found, "dram__bytes.sum.per_second") == [(2, 1.5e9)]
    assert (said.n, said.n_matched, found.repairs) == (1, 1, ())


def test_numbers_of_another_country_are_read_as_they_are_meant(tmp_path):
    """1.024,5 has a decimal comma; so 2.000 is two thousand."""
    text = (
        RAW.replace("1,024.5", "1.024,5")
        .replace('"1.5"', '"1,5"')
        .replace('"2","24"', '"2.000","24"')
    )
    found, _ = _attached(tmp_path, text, _drawn())

    assert _column(found, "dram__bytes.sum") == [(0, 1_024_500), (1, 2e6), (2, 3_000)]


def test_of_several_processes_the_one_that_fits_is_taken(tmp_path):
    """Process 8 ran other sizes."""
    other = [
        line.replace('"7","python"', '"8","python"').replace("(16, 16, 16)", "(4, 4, 4)")
        for line in RAW.splitlines()[4:7]
    ]
    lines = RAW.splitlines()
    _, said = _attached(tmp_path, "\n".join([*lines[:4], *other, *lines[4:]]), _drawn())

    assert (said.n, said.n_matched) == (6, 3)
    assert "of its 2 processes, 7 fits best" in said.detail


def test_metrics_feed_the_counters_and_rates_and_survive_in_a_saved_graph(tmp_path):
    """A thousand bytes in the twelve microseconds that the kernel took in the trace."""
    found, _ = _attached(tmp_path, RAW.replace('"2","24"', '"1","24"'), _drawn())
    graph = Trace(found).compile()
    again = TraceGraph.open(graph.save(tmp_path / "graph.npz"))

    assert again.cupti_counters().equals(graph.cupti_counters())
    counters = again.cupti_counters()
    assert set(counters["instrument"]) == {"Nsight Compute"}
    assert counters["counter"].value_counts().to_dict() == {
        "dram__bytes.sum": 3,
        "gpu__time_duration.sum": 3,
        "sm__throughput.avg.pct": 2,
    }
    rates = again.cupti_rates().set_index("name")
    gemm = rates.loc["ampere_sgemm_128x64_tn"]
    assert gemm[["n_ranges", "dur_ns", "bytes"]].tolist() == [2, 30_000, 4_000]
    assert gemm["bytes_per_s"] == pytest.approx(4_000 / 30e-6)
    assert rates["flop"].isna().all()


def test_a_table_without_launches_is_an_error(tmp_path):
    """The tool stopped before the first kernel ended."""
    with pytest.raises(TraceFormatError, match=r"no launch with a metric .* Hint: ncu --csv"):
        _attached(tmp_path, "\n".join(RAW.splitlines()[:4]), _drawn())


def test_broken_tables_are_errors_of_the_package_or_counted(tmp_path):
    """Bytes of good tables, changed and cut: what was not read is counted, nothing crashes."""
    rng = np.random.default_rng(0)
    events = _drawn()
    for _ in range(40):
        text = bytearray(np.random.default_rng(rng.integers(9)).choice([RAW, DETAILS]).encode())
        for _ in range(rng.integers(1, 6)):
            at = rng.integers(len(text))
            text[at : at + rng.integers(0, 4)] = rng.bytes(rng.integers(0, 3))
        (tmp_path / "metrics.csv").write_bytes(text[: rng.integers(1, len(text) + 1)])
        try:
            found = with_beside(Recording(events), [tmp_path / "metrics.csv"])
        except TraceFormatError:
            continue
        assert found.attached[0].n_matched <= found.attached[0].n
