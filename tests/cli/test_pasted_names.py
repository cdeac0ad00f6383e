"""What a table prints for a name can be pasted back: options that take names accept it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import htagraph as hg
from htagraph.cli.main import main
from htagraph.model.labels import distinct_names
from tests.real_traces import cases, located

OPS = ("Add", "Mul")
GEMM = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_nhwckrsc_nchw_tilesize{}x128x16"
KERNELS = [
    *(f"void at::native::vectorized_elementwise_kernel<4, at::{op}Functor>(int)" for op in OPS),
    *(f"void at::native::reduce_kernel<{a}, {b}>(float)" for a, b in ((512, 1), (1, 512))),
    *(GEMM.format(size) for size in (64, 128)),
    "Memcpy HtoD (Pinned -> Device)",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of kernels one after the other, each on the path, with names that are alike."""
    events = []
    for at, name in enumerate(KERNELS):
        ids = {"pid": 1, "tid": 1, "ts": 10 * at, "dur": 5, "args": {"correlation": at + 1}}
        work = {"pid": 0, "tid": 7, "ts": 100 * at + 20, "dur": 100}
        work["args"] = {**ids["args"], "device": 0, "stream": 7}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **ids})
        events.append({"ph": "X", "cat": "kernel", "name": name, **work})
    path = tmp_path_factory.mktemp("alike") / "rank0.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as end:
        main([*map(str, words)])
    out = capsys.readouterr()
    assert end.value.code == 0, out.err
    return out.out


@pytest.mark.parametrize("width", [80, 140])
def test_every_kernel_that_what_if_prints_can_be_scaled_by_that_name(
    file: Path,
    width: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes 100 of 720 us; it is that kernel, and no other."""
    monkeypatch.setenv("COLUMNS", str(width))
    table = printed(capsys, "what-if", file, "-q").splitlines()
    labels = [line.split(" twice as fast ")[0] for line in table if " twice as fast " in line]

    assert len(labels) == len(KERNELS)
    for label in labels:
        said = printed(capsys, "what-if", file, "-q", "--scale", f"{label}=0.5")
        assert ": saves 6.9%" in said, label


@pytest.mark.parametrize("width", [24, 40, 60])
def test_every_label_finds_the_name_that_it_is_short_for(file: Path, width: int) -> None:
    events = hg.load(file).compile().dag.events
    found = {
        name: events.symbols.array[events.symbols.named(label)].tolist()
        for name, label in distinct_names(KERNELS, width=width).items()
    }

    assert found == {name: [name] for name in KERNELS}


def test_a_short_name_stands_for_all_that_are_printed_so(file: Path) -> None:
    graph = hg.load(file).compile()

    assert len(graph.select(name="vectorized_elementwise_kernel")) == 2
    assert len(graph.select(name="reduce_kernel")) == 2
    assert len(graph.kernel_durations(name="reduce_kernel")) == 2


@pytest.mark.parametrize(
    "trace",
    cases(f"tracelens/{name}.json.gz" for name in ("sglang_Qwen3-8B_decode", "eager_trace")),
)
def test_labels_of_real_names_find_them(trace: str) -> None:
    events = hg.load(located(trace)).compile().dag.events
    names = sorted({*events.names(np.arange(len(events))).tolist()})
    labels = distinct_names(names, width=40)

    for one, label in labels.items():
        assert one in events.symbols.array[events.symbols.named(label)].tolist()
