"""Where a job hangs: real dumps of planted hangs over gloo, and drawn ones of NCCL."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import process_time

import pytest

import htagraph as hg
from htagraph.errors import TraceFormatError
from htagraph.readers.flight_recorder import read_dump
from tests.real_traces import CAPTURES

HANGS = CAPTURES / "flight_recorder" / "hangs"
S = 1_000_000_000

PLANTED = {
    # Ranks that are named, or "" if the answer names none; what it says of the first row.
    "missing_member": ("missing", "all_reduce", 3, "1"),
    "left_early": ("missing", "all_reduce", 4, "0"),
    "subgroup": ("missing", "all_gather", 1, "2"),
    "crossed": ("missing", "all_reduce", 1, "1"),
    "other_order": ("other operation", "all_reduce", 2, "2"),
    "no_barrier": ("other operation", "barrier", 2, "1"),
    "other_size": ("other size", "all_reduce", 2, "0, 1"),
    "other_dtype": ("other dtype", "all_reduce", 2, "0, 2"),
    "crashed": ("no dump", "all_reduce", 2, "2"),
}


def dumps_of(name: str, folder: Path, *, later_s: float = 5) -> hg.Dumps:
    """Dumps of a planted hang, written some seconds after the last collective."""
    files = [Path(shutil.copy(file, folder)) for file in sorted((HANGS / name).iterdir())]
    last_ns = max(entry.created_ns for file in files for entry in read_dump(file).entries)
    for file in files:
        os.utime(file, ns=(0, last_ns + int(later_s * S)))
    return hg.load_dumps(folder)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_hang_is_named(name: str, tmp_path: Path) -> None:
    """The first row says what, which number, and who; it is no wait that may be in flight."""
    first = dumps_of(name, tmp_path).hangs().iloc[0]

    assert (first["kind"], first["operation"], first["seq"], first["ranks"]) == PLANTED[name]
    assert not first["is_open"]


def test_who_waits_is_said_with_the_line(tmp_path: Path) -> None:
    """Pickles hold stacks, JSON none: rank 0 wrote JSON."""
    last = dumps_of("missing_member", tmp_path).last_collectives()

    assert last["is_waiting"].tolist() == [True, False, True]
    assert last["code"][0] == ""
    assert last["code"][2].endswith("hangs.py:18 missing_member")
    assert (last["state"] == "").all()  # gloo writes "scheduled" for all


def test_a_rank_that_waits_elsewhere_is_not_the_first_cause(tmp_path: Path) -> None:
    """Rank 0 never enters the group of all, since it waits for rank 2 in its own."""
    found = dumps_of("subgroup", tmp_path).hangs()

    assert found["group"].tolist() == ["1", "0"]
    assert found["detail"][1].endswith("; rank 0 waits elsewhere.")


def test_groups_entered_in_other_orders_wait_for_each_other(tmp_path: Path) -> None:
    verdict = dumps_of("crossed", tmp_path).verdict()

    assert verdict.startswith("Ranks 0, 1 wait for each other, in different groups.\n")


def test_a_slow_rank_is_no_hang(tmp_path: Path) -> None:
    """Two ranks wait for the third when the dumps are taken, half a second after they came."""
    found = dumps_of("slow", tmp_path, later_s=0.5)

    assert found.hangs()["is_open"].tolist() == [True]
    assert found.verdict().startswith("No hang found")
    assert "this may be in flight" in found.verdict()


def test_a_wait_of_a_minute_is_a_hang(tmp_path: Path) -> None:
    """Of a timeout of ten, at which NCCL ends a job."""
    for written_s, is_open in ((50, True), (70, False)):
        for rank in range(3):
            write(tmp_path, rank, [DONE, STARTED][: 1 if rank == 1 else 2], written_s=written_s)
        (hang,) = hg.load_dumps(tmp_path).hangs().to_dict("records")

        assert (hang["is_open"], hang["waited_ns"]) == (is_open, (written_s - 2) * S)


def test_of_copied_files_only_a_failed_collective_is_a_hang(tmp_path: Path) -> None:
    """Their times are days later. In one case it ended without a member, in the other not."""
    for name, is_open in (("missing_member", False), ("slow", True)):
        folder = tmp_path / name
        folder.mkdir()
        first = dumps_of(name, folder, later_s=300_000).hangs().iloc[0]

        assert (bool(first["is_open"]), first["waited_ns"]) == (is_open, -1)


@pytest.mark.parametrize("shift_s", [0, 0.4, 3_600, -86_400])
def test_a_member_that_came_after_the_timeout_is_named(shift_s: float, tmp_path: Path) -> None:
    """Whatever the clock of its host: it is compared with how far apart the ranks usually are."""
    for name, (late_s, is_hang) in {"stuck": (700, True), "slow": (500, False)}.items():
        folder = tmp_path / name
        folder.mkdir()
        for rank in range(3):
            write(folder, rank, [*[DONE] * 4, QUEUED], written_s=1e5)
            file = folder / f"nccl_trace_rank_{rank}"
            document = json.loads(file.read_text())
            for one in document["entries"]:
                one |= {"time_discovered_completed_ns": None, "state": "scheduled", "retired": True}
                one["time_created_ns"] += int(shift_s * S) if rank == 1 else 0
            document["entries"][-1]["time_created_ns"] += late_s * S if rank == 1 else 0
            file.write_text(json.dumps(document))
        found = hg.load_dumps(folder)

        if not is_hang:
            assert found.hangs().empty
            continue
        (hang,) = found.hangs().to_dict("records")
        assert (hang["kind"], hang["seq"], hang["ranks"], hang["entered"]) == (
            *("too late", 5, "1", "0, 2"),
        )
        assert (hang["waited_ns"], hang["is_open"]) == (700 * S, False)
        assert found.verdict().startswith(
            "Rank 1 entered all_reduce #5 of group 0 of ranks 0-2 700 s after ranks 0, 2, who came "
        )
        assert found.last_collectives()["is_waiting"].tolist() == [True, False, True]


def test_time_grows_with_the_groups_not_with_their_square(tmp_path: Path) -> None:
    """Four times the groups, and far from 16 times the time; 4,000 took 75 seconds."""
    took_s = []
    for n in (500, 2_000):
        for rank in range(3):
            collectives = [("all_reduce", 8, "completed", str(at)) for at in range(n)]
            write(tmp_path, rank, collectives, groups={"0": [0, 1, 2]}, step_s=0.01)
            file = tmp_path / f"nccl_trace_rank_{rank}"
            document = json.loads(file.read_text())
            file.write_text(json.dumps(document | {"pg_config": {"": {"ranks": "[0, 1, 2]"}}}))
        tries_s = []
        for _ in range(3):
            begun_s = process_time()
            assert hg.load_dumps(tmp_path).hangs().empty
            tries_s.append(process_time() - begun_s)
        took_s.append(min(tries_s))
    assert took_s[1] < 10 * took_s[0]


Collective = tuple[str, int, str] | tuple[str, int, str, str]
"""Operation, elements, state; and the group, if it is not that of the call."""


def write(
    folder: Path,
    rank: int,
    entered: Sequence[Collective],
    *,
    states: str = "",
    groups: dict[str, list[int]] | None = None,
    group: str = "0",
    first: int = 1,
    step_s: float = 1,
    written_s: float = 700,
    **more: object,
) -> None:
    """A dump of NCCL: collectives a step apart, from a number on."""
    groups = groups or {"0": [0, 1, 2]}
    seqs = Counter(dict.fromkeys(groups, first - 1))
    entries = [
        {
            "record_id": number - 1,
            "process_group": [(own := (*in_group, group)[0]), own],
            "collective_seq_id": seqs.update([own]) or seqs[own],
            "p2p_seq_id": 0,
            "is_p2p": False,
            "profiling_name": f"nccl:{operation}",
            "input_sizes": [[size]],
            "output_sizes": [[size]],
            "input_dtypes": ["Float"],
            "output_dtypes": ["Float"],
            "state": state,
            "time_created_ns": int(1_000 * S + number * step_s * S),
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": 7 if state == "completed" else None,
            "retired": state == "completed",
            "timeout_ms": 600_000,
            **more,
        }
        for number, (operation, size, state, *in_group) in enumerate(entered, start=first)
    ]
    config = {name: {"name": name, "desc": "", "ranks": str(of)} for name, of in groups.items()}
    file = folder / f"nccl_trace_rank_{rank}"
    file.write_text(json.dumps({"version": "2.10", "pg_config": config, "entries": entries}))
    os.utime(file, ns=(0, int((1_000 + written_s) * S)))


DONE, STARTED, QUEUED = (
    ("all_reduce", 8, state) for state in ("completed", "started", "scheduled")
)


def test_a_collective_that_all_entered_and_none_completed_is_named(tmp_path: Path) -> None:
    """NCCL writes states: one device has not begun it."""
    for rank in range(3):
        write(tmp_path, rank, [DONE, QUEUED if rank == 2 else STARTED])
    (hang,) = hg.load_dumps(tmp_path).hangs().to_dict("records")

    assert (hang["kind"], hang["seq"], hang["is_open"]) == ("not completed", 2, False)
    assert "(started on ranks 0, 1; scheduled on rank 2)" in hang["detail"]


def test_a_job_that_runs_gives_no_alarm(tmp_path: Path) -> None:
    """Dumps taken one after the other: a later one holds more, all of it completed."""
    for rank in range(3):
        write(tmp_path, rank, [DONE] * (50 + 10 * rank), step_s=0.01, written_s=1 + rank / 10)
    assert hg.load_dumps(tmp_path).hangs().query("not is_open").empty

    for rank in range(3):
        write(tmp_path, rank, [DONE] * 60)
    found = hg.load_dumps(tmp_path)
    assert found.hangs().empty
    assert found.verdict().startswith("No hang found")


def test_ranks_that_ran_ahead_wait_in_the_first_number_that_a_member_lacks(tmp_path: Path) -> None:
    """NCCL calls do not block: rank 0 has launched four more."""
    write(tmp_path, 0, [DONE, STARTED, *[QUEUED] * 3])
    write(tmp_path, 1, [DONE])
    write(tmp_path, 2, [DONE, STARTED])
    (hang,) = hg.load_dumps(tmp_path).hangs().to_dict("records")

    assert (hang["kind"], hang["seq"], hang["ranks"], hang["entered"]) == (
        "missing",
        2,
        "1",
        "0, 2",
    )


def test_a_recorder_that_kept_only_the_last_collectives_is_compared_by_numbers(
    tmp_path: Path,
) -> None:
    write(tmp_path, 0, [*[DONE] * 5, STARTED], first=100)
    write(tmp_path, 1, [DONE] * 4, first=101)
    write(tmp_path, 2, [*[DONE] * 5, STARTED], first=100)
    (hang,) = hg.load_dumps(tmp_path).hangs().to_dict("records")

    assert (hang["kind"], hang["seq"], hang["ranks"]) == ("missing", 105, "1")


def test_members_may_give_other_sizes_to_an_all_to_all(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank, [("all_to_all", 8 + rank, "completed"), DONE])

    assert hg.load_dumps(tmp_path).hangs().empty


def test_members_may_gather_parts_of_other_sizes(tmp_path: Path) -> None:
    """All get the same in the end."""
    for rank in range(3):
        part = [("all_gather", 8 + rank, "completed")]
        write(tmp_path, rank, part, output_sizes=[[8], [9], [10]])
    assert hg.load_dumps(tmp_path).hangs().empty

    write(tmp_path, 1, [("all_gather", 9, "completed")], output_sizes=[[9], [9], [8]])
    (hang,) = hg.load_dumps(tmp_path).hangs().to_dict("records")
    assert (hang["kind"], hang["ranks"]) == ("other size", "1")


def test_groups_of_one_name_and_other_ranks_are_apart(tmp_path: Path) -> None:
    """`split_group` names the group of each half alike."""
    for rank in range(4):
        mine = [0, 1] if rank < 2 else [2, 3]
        done = [DONE] * (2 if rank < 2 else 5)
        write(tmp_path, rank, done, groups={"0": mine})

    assert hg.load_dumps(tmp_path).hangs().empty


def test_a_send_without_a_receive_is_named(tmp_path: Path) -> None:
    """The group has ranks 4 and 6, of which the names of sends count from 0."""
    pair = {"groups": {"0": [4, 6]}, "is_p2p": True, "p2p_seq_id": 1}
    write(tmp_path, 4, [("send 0->1", 8, "started")], **pair)
    write(tmp_path, 6, [], **pair)
    (hang,) = hg.load_dumps(tmp_path).hangs().to_dict("records")

    assert (hang["kind"], hang["operation"], hang["ranks"]) == ("no counterpart", "send", "6")

    write(tmp_path, 6, [("recv 1<-0", 8, "started")], **pair)
    assert hg.load_dumps(tmp_path).hangs().empty


def test_two_dumps_of_one_rank_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0, [DONE])
    shutil.copy(tmp_path / "nccl_trace_rank_0", tmp_path / "other_rank_0.json")

    with pytest.raises(TraceFormatError, match="both of rank 0"):
        hg.load_dumps(tmp_path)


def test_dumps_among_traces_are_found(tmp_path: Path) -> None:
    """A folder without any says how to get them."""
    shutil.copy(hg.demo_trace("none"), tmp_path / "rank0.pt.trace.json.gz")
    with pytest.raises(TraceFormatError, match="no dumps") as caught:
        hg.load_dumps(tmp_path)
    assert "TORCH_FR_BUFFER_SIZE" in str(caught.value.hint)

    for rank in range(3):
        write(tmp_path, rank, [DONE])
    assert hg.load_dumps(tmp_path).ranks == [0, 1, 2]


def test_a_damaged_dump_counts_as_missing(tmp_path: Path) -> None:
    """A rank that died while it wrote. The others are compared; none readable is an error."""
    for rank in range(3):
        write(tmp_path, rank, [DONE, STARTED] if rank else [DONE])
    file = tmp_path / "nccl_trace_rank_2"
    file.write_text(file.read_text()[:-40])
    found = hg.load_dumps(tmp_path)

    assert found.missing_ranks == [2]
    assert found.hangs()["kind"].tolist() == ["missing", "no dump"]
    assert f"Left out: {file}: the dump is damaged" in found.verdict()

    with pytest.raises(TraceFormatError, match="damaged"):
        hg.load_dumps(file)


def test_a_rank_that_waits_for_a_dead_one_is_not_the_cause(tmp_path: Path) -> None:
    """Rank 3 left no dump: rank 2 waits for it in its own group, and rank 0 for rank 2."""
    own, across = ("all_reduce", 8, "started", "own"), ("all_reduce", 8, "started", "across")
    done = [(*DONE, "own"), (*DONE, "across")]
    for rank, entered in ((0, [own, across]), (1, [own, across]), (2, [own])):
        entered[0] = own if rank == 2 else (*DONE, "own")
        groups = {"own": [rank // 2 * 2, rank // 2 * 2 + 1], "across": [rank % 2, rank % 2 + 2]}
        write(tmp_path, rank, [*done, *entered], groups=groups)
    found = hg.load_dumps(tmp_path)

    assert found.hangs()[["kind", "ranks", "is_explained"]].to_numpy().tolist() == [
        ["no dump", "3", False],  # of both groups that it is in
        ["no dump", "3", False],
        ["missing", "2", True],
    ]
    assert found.verdict().startswith("Rank 3 left no dump, and may have crashed")


def test_dumps_without_collectives_say_so(tmp_path: Path) -> None:
    """As NCCL writes them if asked for the state of communicators only, or before the first."""
    write(tmp_path, 0, [])
    document = json.loads((tmp_path / "nccl_trace_rank_0").read_text())
    del document["entries"]
    (tmp_path / "nccl_trace_rank_1").write_text(json.dumps(document | {"nccl_comm_state": {}}))
    found = hg.load_dumps(tmp_path)

    assert found.hangs().empty
    assert found.last_collectives().empty
    assert found.verdict() == "The dumps hold no collectives: nothing can be compared."
