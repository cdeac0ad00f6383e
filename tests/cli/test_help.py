"""What is printed beside answers: help, commands to copy, names to paste, memory."""

from __future__ import annotations

import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import htagraph as hg
from htagraph.arrays.passes import PASSES
from htagraph.cli.main import HOMES, VERBS, function_of, main
from htagraph.model.labels import distinct_names
from tests.hostile.confined import PACKAGE
from tests.real_traces import CAPTURES


def _started(*args: str, columns: int = 80) -> tuple[list[str], set[str]]:
    """What a command prints, line by line, and the modules that it has loaded."""
    code = (
        "import sys; from htagraph.cli.start import start\n"
        f"sys.argv = {['htagraph', *args]!r}\n"
        "try: start()\n"
        "finally: sys.stderr.write(' '.join(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        env=os.environ | {"COLUMNS": str(columns)},
    )
    return run.stdout.splitlines(), set(run.stderr.split())


def test_help_lists_the_verbs_in_whole_sentences() -> None:
    lines, _ = _started("--help")
    listed = {verb: line for line in lines for verb in VERBS if line.startswith(f"  {verb} ")}

    assert {verb: line.split(maxsplit=1)[1] for verb, line in listed.items()} == VERBS
    assert max(map(len, lines)) <= 80


def test_help_loads_no_verb() -> None:
    _, loaded = _started("--help")

    assert not loaded & {"numpy", "htagraph.cli.report", "htagraph.cli.options"}


def test_the_version_loads_not_even_what_reads_options() -> None:
    said, loaded = _started("--version")

    assert said == [f"htagraph {hg.__version__}"]
    assert not loaded & {"typer", "rich", "numpy"}


def test_help_of_verbs_loads_no_pandas() -> None:
    """Of all libraries, it takes longest to load; one process asks for the help of each."""
    code = "import sys; from htagraph.cli.start import start\n" + "".join(
        f"sys.argv = ['htagraph', {verb!r}, '--help']\ntry: start()\nexcept SystemExit: pass\n"
        for verb in VERBS
    )
    code += "sys.stderr.write(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = set(run.stderr.split())
    homes = {HOMES.get(verb, function_of(verb)) for verb in VERBS}
    assert {f"htagraph.cli.{home}" for home in homes} <= loaded
    assert "pandas.core" not in loaded


def test_each_verb_is_a_function_of_its_name() -> None:
    names = {verb: function_of(verb) for verb in VERBS}

    for verb, name in names.items():
        assert callable(getattr(import_module(f"htagraph.cli.{HOMES.get(verb, name)}"), name))


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


@pytest.mark.parametrize("width", [80])
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


_VERBS = "|".join(VERBS)
_COMMAND = re.compile(rf"`htagraph ((?:{_VERBS})[^`]*)`|: htagraph ([^\n`]+)$", re.MULTILINE)
_ARGUMENTS = "htagraph() { printf '%s\\0' \"$@\"; }; "
"""What a shell passes to the command, each argument with a zero at its end."""

PRINTING = {
    "what would help": ("what-if", "my run.json.gz"),
    "a change": ("what-if", "my run.json.gz", "--prefetch", "2", "--out", "both.pftrace"),
    "several files": ("what-if", "job/a-0.json.gz", "job/a-1.json.gz"),
    "a folder": ("what-if", "job", "--capture", "latest", "--equalise"),
    "a report": ("report", "my run.json.gz", "--no-files"),
    "a report on a rank": ("report", "job", "--rank", "1", "--no-files"),
    "a report on nothing": ("report", "my run.json.gz", "-w", "0:10", "--no-files"),
    "an unknown question": ("ask", "kernels", "job/a-0.json.gz", "job/a-1.json.gz"),
    "a repaired file": ("info", "cut.json"),
    "a dump": ("info", "dumps/nccl_trace_rank_0"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demo traces under names that a shell would split, a cut one, and dumps."""
    into = tmp_path_factory.mktemp("printed")
    demo = hg.demo_trace("dataloader")
    shutil.copy(demo, into / "my run.json.gz")
    whole = gzip.decompress(Path(demo).read_bytes())
    (into / "cut.json").write_bytes(whole[: len(whole) * 9 // 10])
    (into / "job").mkdir()
    for rank, file in enumerate(sorted(Path(hg.demo_trace("job")).iterdir())):
        shutil.copy(file, into / "job" / f"{'a' if rank < 2 else 'b'}-{rank}.json.gz")
    shutil.copytree(CAPTURES / "flight_recorder" / "hangs" / "crashed", into / "dumps")
    return into


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    streams = capsys.readouterr()
    return int(end.value.code or 0), streams.out + streams.err


def _passed_by_a_shell(command: str) -> list[str]:
    shell = ["sh", "-c", f"{_ARGUMENTS}htagraph {command}"]
    done = subprocess.run(shell, capture_output=True, check=True, encoding="utf-8")
    return done.stdout.split("\0")[:-1]


@pytest.mark.some(1)
@pytest.mark.parametrize("words", PRINTING.values(), ids=PRINTING)
def test_printed_commands_run(folder, words, capsys, monkeypatch):
    """In a shell, with the exit code 0; a page that would be served is there."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "1000")
    _, said = _run(capsys, *words)
    commands = ["".join(found) for found in _COMMAND.findall(said)]

    assert commands, said
    for command in commands:
        verb, *rest = _passed_by_a_shell(command)
        if verb == "view":
            assert Path(rest[0]).is_file()
        else:
            assert (command, *_run(capsys, verb, *rest))[:2] == (command, 0)


_FREE_A_BLOCK = """
from pathlib import Path
from htagraph.arrays.memory import keeps_memory

keeps_memory()
block = b"x" * (64 << 20)
del block
print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_memory_that_is_freed_is_kept():
    """By default a block of 64 MiB is given back; here the next one takes its place."""
    found = subprocess.run(
        [sys.executable, "-c", _FREE_A_BLOCK], capture_output=True, text=True, check=True
    )

    assert int(found.stdout) >= 64


@pytest.mark.slow
def test_every_compiled_function_is_compiled(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["warm", "--quiet"])
    for file in PACKAGE.rglob("*.py"):
        if re.search(r"^@(compiled|entry)$|= compiled\(", file.read_text(), re.MULTILINE):
            import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts))

    assert not ended.value.code
    assert {name for name, forms in PASSES.items() if not forms and "htagraph" in name} == set()
    assert re.fullmatch(
        r"\d+ functions ready after [\d.]+ s, kept in \S+\s", capsys.readouterr().out
    )
