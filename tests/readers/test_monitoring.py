"""Monitoring logs: formats, time zones, devices, and what cannot be placed."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from htagraph.errors import TraceFormatError
from htagraph.lookup.samples import sample_levels
from htagraph.model.devices import DeviceProperties
from htagraph.model.events import EventTable
from htagraph.model.recording import Attachment, Recording
from htagraph.readers.beside import with_beside
from htagraph.synth import timeline

BEGIN = datetime(2024, 5, 1, 10, 0, 0, tzinfo=UTC)
"""When the trace begins; it ends ten seconds later."""
BEGIN_NS = int(BEGIN.timestamp()) * 10**9
H100 = "NVIDIA H100 80GB HBM3"


def _trace(*devices: int, start_ns: int = BEGIN_NS) -> Recording:
    """Ten seconds of the host, with a kernel on each device."""
    kernels = "\n".join(f"gpu {device} stream 7 | [gemm  ]" for device in devices)
    events = timeline(f"cpu 1 |[aten::mm]\n{kernels}", us_per_column=1_000_000)
    known = tuple(DeviceProperties(device, H100) for device in devices)
    return Recording(replace(events, ts_ns=events.ts_ns + start_ns, devices=known))


def _attached(
    tmp_path: Path, text: str, recording: Recording | None = None
) -> tuple[EventTable, Attachment]:
    """Events with the samples of a log, and its attachment."""
    path = tmp_path / "monitor.log"
    path.write_text(text)
    os.utime(path, (0, 0))
    found = with_beside(recording or _trace(0), [path])
    return found.events, found.attached[-1]


def _series(events: EventTable) -> dict[str, list[tuple[float, float]]]:
    """Samples by name: seconds from the start of the trace, and the value."""
    table = events.samples
    rows: dict[str, list[tuple[float, float]]] = {}
    for series, ts_ns, value in zip(
        table.series.tolist(), table.ts_ns.tolist(), table.value.tolist(), strict=True
    ):
        rows.setdefault(table.all_series[series].name, []).append(((ts_ns - BEGIN_NS) / 1e9, value))
    return rows


def _query_log(hours: float, seconds: range, *, gpus: dict[int, str] | None = None) -> str:
    """What ``nvidia-smi --query-gpu=… --format=csv -l 1`` writes on a clock that is ahead."""
    lines = ["timestamp, index, name, utilization.gpu [%], power.draw [W], pstate"]
    for second in seconds:
        when = BEGIN + timedelta(hours=hours, seconds=second)
        for gpu, name in (gpus or {0: H100}).items():
            stamp = f"{when:%Y/%m/%d %H:%M:%S}.250"
            lines.append(f"{stamp}, {gpu}, {name}, {second + 50} %, {100 * gpu + 300}.50 W, P0")
    return "\n".join(lines) + "\n"


def test_a_log_of_local_times_is_put_where_only_one_zone_lets_it_overlap(tmp_path):
    """The log is two hours ahead of UTC; one sample before and one after the trace are kept."""
    events, said = _attached(tmp_path, _query_log(2, range(-5, 15)))

    assert _series(events)["utilization.gpu"] == [(t + 0.25, t + 50) for t in range(-1, 12)]
    assert (said.instrument, said.n, said.n_matched) == ("nvidia-smi", 40, 26)
    assert said.detail == (
        "by wall clock, its local times taken as UTC+2, the only zone in which it overlaps the "
        "trace; its only GPU is that of the trace; sampled every 1.00 s; times to +-1.50 s; "
        "14 samples before or after the trace left out"
    )


def test_what_a_counter_averages_over_is_part_of_its_uncertainty(tmp_path):
    """Half a second between samples, a millisecond of digits; utilisation is over a second."""
    log = _query_log(0, range(10)).replace("pstate", "clocks.sm [MHz]").replace("P0", "1410 MHz")
    events, _ = _attached(tmp_path, log)
    unsure = {one.name: one.uncertainty_ns for one in events.samples.all_series}

    assert unsure == {
        "clocks.sm": 501_000_000,
        "power.draw": 1_501_000_000,
        "utilization.gpu": 1_501_000_000,
    }


@pytest.mark.parametrize(
    ("hours", "written_s", "how"),
    [
        (0, 0, "taken as UTC, though 2 other zones fit as well"),
        (9, 4_000, "taken as UTC+9, by when the file was last written"),
        (9, 0, "not placed: its local times overlap the trace in 5 zones; record it with TZ=UTC"),
        (
            20,
            0,
            "not placed: its local times, from 2024-05-02 04:53:20.250 to 2024-05-02 07:0",
        ),
    ],
)
def test_a_log_that_fits_in_several_zones_is_placed_by_evidence_or_not_at_all(
    tmp_path, hours, written_s, how
):
    """Hours of samples around seconds of trace."""
    path = tmp_path / "long.csv"
    path.write_text(_query_log(hours, range(-4_000, 4_001, 10)))
    os.utime(path, ns=(0, (BEGIN_NS + written_s * 10**9) if written_s else 0))
    said = with_beside(_trace(0), [path]).attached[-1]

    assert how in said.detail
    assert (said.n_matched == 0) == how.startswith("not placed")


def test_a_gpu_is_found_by_its_name_where_numbers_differ(tmp_path):
    """CUDA_VISIBLE_DEVICES=1 makes the second GPU device 0: only one is an H100."""
    events, said = _attached(tmp_path, _query_log(0, range(10), gpus={0: "NVIDIA L4", 1: H100}))

    assert {value for _, value in _series(events)["power.draw"]} == {400.5}
    assert [one.device for one in events.samples.all_series] == [0, 0]
    assert "GPUs by name" in said.detail
    assert "20 samples of other GPUs left out" in said.detail


def test_gpus_of_one_name_are_found_by_number_and_that_is_said(tmp_path):
    """Device 1 of two alike."""
    log = _query_log(0, range(10), gpus={0: H100, 1: H100})
    events, said = _attached(tmp_path, log, _trace(1))

    assert {value for _, value in _series(events)["power.draw"]} == {400.5}
    assert "by number, which is right unless CUDA_VISIBLE_DEVICES" in said.detail


def test_a_log_of_other_gpus_is_left_out_and_that_is_said(tmp_path):
    """Somebody else's machine."""
    _, said = _attached(tmp_path, _query_log(0, range(10), gpus={0: "NVIDIA L4"}))

    assert said.n_matched == 0
    assert f"no GPU of the log (NVIDIA L4) is one of the trace ({H100})" in said.detail


EPOCH = BEGIN_NS // 10**9
FORMATS = {
    "nvidia-smi dmon -o DT": (
        (
            "#Date       Time        gpu    pwr     sm    mem\n"
            "#YYYYMMDD   HH:MM:SS    Idx      W      %      %\n"
            " 20240501   10:00:01      0    300     50      -\n"
            "#Date       Time        gpu    pwr     sm    mem\n"
            "#YYYYMMDD   HH:MM:SS    Idx      W      %      %\n"
            " 20240501   10:00:02      0    310     60      -\n"
        ),
        {"pwr": [(1, 300), (2, 310)], "sm": [(1, 50), (2, 60)]},
    ),
    "nvidia-smi pmon -o DT": (
        (
            "#Date       Time        gpu         pid  type    sm   mem   command\n"
            "#YYYYMMDD   HH:MM:SS    Idx           #   C/G     %     %   name\n"
            " 20240501   10:00:01      0        1234     C    50     5   python\n"
            " 20240501   10:00:01      1           -     -     -     -   -\n"
        ),
        {"sm of process 1234": [(1, 50)], "mem of process 1234": [(1, 5)]},
    ),
    "dcgmi dmon | ts %.s": (
        (
            f"{EPOCH}.5 # Entity  SMACT  DRAMA\n{EPOCH}.5       Id\n"
            f"{EPOCH}.5    GPU 0  0.500  N/A\n{EPOCH}.5  GPU-I 0  0.900  0.9\n"
            f"{EPOCH + 1}.5    GPU 0  0.600  0.2\n"
        ),
        {"SMACT": [(0.5, 0.5), (1.5, 0.6)], "DRAMA": [(1.5, 0.2)]},
    ),
    "metrics as columns": (
        (
            "timestamp,gpu,modelName,DCGM_FI_PROF_SM_ACTIVE,DCGM_FI_DEV_POWER_USAGE\n"
            "2024-05-01T12:00:01+02:00,0,NVIDIA H100,0.5,300\n"
            "2024-05-01T10:00:02Z,0,NVIDIA H100,0.6,310\n"
        ),
        {
            "DCGM_FI_PROF_SM_ACTIVE": [(1, 0.5), (2, 0.6)],
            "DCGM_FI_DEV_POWER_USAGE": [(1, 300), (2, 310)],
        },
    ),
    "dcgm-exporter, each line with its time": (
        (
            "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
            f'{EPOCH} DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1",modelName="NVIDIA H100"}} 87\n'
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1"}} 88 {EPOCH + 1}500\n'
        ),
        {"DCGM_FI_DEV_GPU_UTIL": [(0, 87), (1.5, 88)]},
    ),
    "amd-smi metric -w 1 --csv": (
        (
            f"timestamp,gpu,socket_power,gfx_activity\n{EPOCH + 1},0,238,90\n"
            f"timestamp,gpu,socket_power,gfx_activity\n{EPOCH + 2},0,N/A,95\n"
        ),
        {"socket_power": [(1, 238)], "gfx_activity": [(1, 90), (2, 95)]},
    ),
}


def test_a_value_that_nothing_measures_is_none(tmp_path):
    """A damaged line says that a GPU takes 10^308 W."""
    head = "timestamp,gpu,socket_power,gfx_activity\n"
    rows = f"{EPOCH + 1},0,238,90\n{EPOCH + 2},0,1e308,95\n"
    events, _ = _attached(tmp_path, head + rows)

    power = next(one for one in sample_levels(events.samples) if one.series.name == "socket_power")
    assert power.value.tolist() == [238.0]


@pytest.mark.parametrize("log", FORMATS)
def test_each_tool_is_read_as_it_writes(tmp_path, log):
    """Headers come again, values are missing, parts of a GPU are passed over."""
    text, samples = FORMATS[log]
    events, _ = _attached(tmp_path, text)

    assert _series(events) == samples


EXPORTER = "\n".join(
    f'{EPOCH + 1} DCGM_FI_{field}{{gpu="0",modelName="{H100}"{part}}} {value}'
    for part, shares in (
        ("", (0.5, 1400)),
        (',GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"', (0.9, 1400)),
        (',GPU_I_PROFILE="3g.40gb",GPU_I_ID="2"', (0.2, 1400)),
    )
    for field, value in zip(("PROF_SM_ACTIVE", "DEV_SM_CLOCK"), shares, strict=True)
)
"""A GPU and two instances of it, as `dcgm-exporter` labels them."""
DMON = "".join(
    f"{EPOCH + 1} # Entity  SMACT  SMCLK\n"
    f"{EPOCH + 1}    GPU 0  0.500   1400\n{EPOCH + 1}  GPU-I 3  0.900    N/A\n"
)
"""A GPU and its only instance, which `dcgmi dmon` numbers on its own."""


def _on_instance(profile: str) -> Recording:
    """The trace of a part of a GPU."""
    recording = _trace(0)
    part = DeviceProperties(0, f"{H100} MIG {profile}")
    return replace(recording, events=replace(recording.events, devices=(part,)))


@pytest.mark.parametrize(
    ("log", "profile", "activity", "said"),
    [
        (EXPORTER, "1g.10gb", [0.9], "GPU-I 7 of the log is the only one that can be MIG 1g.10gb"),
        (EXPORTER, "3g.40gb", [0.2], "1 sample of the whole GPU left out"),
        (EXPORTER, "2g.20gb", [], "0 instances of the log can be MIG 2g.20gb, so none is taken"),
        (DMON, "1g.10gb", [0.9], "GPU-I 3 of the log is the only one"),
        (DMON.replace("GPU 0", "GPU-I 1"), "1g.10gb", [], "2 instances of the log can be MIG"),
    ],
)
def test_a_part_of_a_gpu_has_the_samples_of_its_part(tmp_path, log, profile, activity, said):
    """The trace names its profile; which of several alike it is stays unknown."""
    events, attached = _attached(tmp_path, log, _on_instance(profile))
    found = _series(events)

    assert [
        value
        for name in found
        if "CLK" not in name and "CLOCK" not in name
        for _, value in found[name]
    ] == activity
    assert said in attached.detail


def test_clocks_of_the_whole_gpu_are_those_of_its_parts(tmp_path):
    events, _ = _attached(tmp_path, DMON, _on_instance("1g.10gb"))

    assert _series(events)["SMCLK"] == [(1, 1400)]


@pytest.mark.parametrize("log", [EXPORTER, DMON])
def test_a_whole_gpu_has_no_samples_of_its_parts(tmp_path, log):
    """Mixed, the values of three would be one series."""
    events, attached = _attached(tmp_path, log)

    assert [value for _, value in next(iter(_series(events).values()))][:1] in ([1400], [0.5])
    assert all(len(samples) == 1 for samples in _series(events).values())
    assert "of other parts of a GPU left out" in attached.detail


@pytest.mark.parametrize(
    "text",
    [
        "# gpu    pwr     sm\n# Idx      W      %\n    0    300     50\n",
        "# Entity  SMACT\n      Id\n   GPU 0  0.500\n",
        "2024/05/01 10:00:01.000, 0, NVIDIA H100, 50 %\n",
        "index, utilization.gpu [%]\n0, 50 %\n",
    ],
    ids=["dmon", "dcgmi", "no header", "no timestamp"],
)
def test_a_log_without_times_or_header_is_an_error_that_says_how_to_record_them(tmp_path, text):
    """Nothing is guessed from the order of lines."""
    with pytest.raises(TraceFormatError, match=r"no line .* Hint: record times: nvidia-smi"):
        _attached(tmp_path, text)


def test_lines_that_are_not_understood_are_counted(tmp_path):
    """A log that was cut off, and a warning in it."""
    log = _query_log(0, range(3)) + "Unable to determine the device handle\n2024/05/01 10:0"
    path = tmp_path / "cut.csv"
    path.write_text(log)
    (repair,) = with_beside(_trace(0), [path]).repairs

    assert str(repair) == "monitoring line: 2 x (cannot be parsed in cut.csv)"


def test_a_trace_that_does_not_count_from_the_epoch_gets_no_samples(tmp_path):
    """Nor one that ended before the log began: both say why."""
    _, relative = _attached(tmp_path, _query_log(0, range(3)), _trace(0, start_ns=0))
    epoch = f"timestamp,gpu,socket_power\n{EPOCH + 100},0,1\n{EPOCH + 101},0,1\n"
    _, later = _attached(tmp_path, epoch)

    assert relative.detail == "not placed: times of the trace do not count from the epoch"
    assert later.detail == "not placed: the log begins 90.0 s after the trace ends"
    assert (relative.n_matched, later.n_matched) == (0, 0)


def test_broken_logs_are_errors_of_the_package_or_lose_nothing_in_silence(tmp_path):
    """Bytes of good logs, changed, cut and joined: every line is read or counted."""
    rng = np.random.default_rng(0)
    logs = [text.encode() for text, _ in FORMATS.values()] + [_query_log(1, range(5)).encode()]
    path, recording = tmp_path / "broken.log", _trace(0)
    for _ in range(40):
        text = bytearray(logs[rng.integers(len(logs))] + logs[rng.integers(len(logs))])
        for _ in range(rng.integers(1, 6)):
            at = rng.integers(len(text))
            text[at : at + rng.integers(0, 4)] = rng.bytes(rng.integers(0, 3))
        path.write_bytes(text[: rng.integers(1, len(text) + 1)])
        try:
            found = with_beside(recording, [path])
        except TraceFormatError:
            continue
        assert len(found.events.samples) == found.attached[0].n_matched <= found.attached[0].n
