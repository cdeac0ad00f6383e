"""The collectives of one rank; those of many, matched, are in tests/job/test_collectives.py."""

from __future__ import annotations

import pandas as pd
import pytest

from htagraph.compiler.passes import compile_events
from htagraph.model.window import Window
from htagraph.queries.communication import collectives, short_group
from htagraph.synth import timeline


def _asked(drawing: str, window: Window | None = None, **options) -> pd.DataFrame:
    dag = compile_events(timeline(drawing, **options))
    return collectives(dag, window or dag.span)


def _rows(frame: pd.DataFrame, *names: str) -> list[list]:
    return frame[list(names)].to_numpy().tolist()


def test_collectives_are_those_launched_in_the_capture_in_the_order_of_launches():
    """The first kernel has no launch; the one of stream 9 was launched last, and ran first."""
    frame = _asked("""
        us       |0         10        20        30        40        50
        cpu 1    |           [launch >a][launch >b]
        stream 7 |[ncclAllReduce]                      [ncclAllReduce <a ]
        stream 9 |                            [ncclAllReduce <b ]
    """)

    assert _rows(frame, "collective", "start_ns") == [[0, 37_000], [1, 28_000]]


@pytest.mark.parametrize(
    ("host", "kernel", "found"),
    [
        ("[launch >a]", "ncclAllReduce", ["all_reduce", "kernel name"]),
        ("[launch >a]", "ncclDevKernel_Generic", ["", "kernel name"]),
        ("{nccl:all_to_all [launch >a]}", "ncclSendRecv", ["all_to_all", "annotation"]),
        ("[op [launch >a]]", "ncclSendRecv", ["all_gather", "operator metadata"]),
    ],
)
def test_an_operation_is_named_by_metadata_else_by_an_annotation_else_by_the_kernel(
    host, kernel, found
):
    """A kernel that is called SendRecv may do anything."""
    recorded = {"collective": {"op": "_allgather_base"}} if "[op" in host else {}
    frame = _asked(
        f"""
        cpu 1    |{host}
        stream 7 |{" " * len(host)}[{kernel} <a ]
        """,
        columns=recorded,
    )

    assert _rows(frame, "operation", "found_by") == [found]


def test_an_annotation_says_who_sends_to_whom():
    """The peer of a send is who receives."""
    frame = _asked(
        """
        cpu 1    |{to [launch >a]}
        stream 7 |                [ncclSendRecv <a ]
        """,
        names={"to": "nccl:send 0->1"},
    )

    assert _rows(frame, "operation", "peer") == [["send", 1]]


@pytest.mark.parametrize(
    ("kernel", "operation", "group"),
    [
        ("void deep_ep::intranode::notify_dispatch<8>(int*)", "notify", "of 8 ranks (notify)"),
        ("void deep_ep::intranode::cached_notify_combine<8>(int)", "notify", "of 8 ranks (notify)"),
        ("void deep_ep::intranode::dispatch<8, 768>(int)", "dispatch", "of 8 ranks (dispatch)"),
        ("deep_ep::intranode::combine<__nv_bfloat16, 8>(int)", "combine", "of 8 ranks (combine)"),
        ("void deep_ep::internode::cached_notify<false>(int)", "notify", "(notify)"),
        ("void deep_ep::internode_ll::combine<false, 7168, 9>(int)", "combine", "(combine)"),
        ("void deep_ep::internode_ll::clean_low_latency_buffer<512>(int)", "barrier", "(barrier)"),
        ("mori::moe::EpDispatchIntraNodeKernel<float>(int)", "dispatch", "(dispatch)"),
    ],
)  # fmt: skip
def test_the_name_of_an_expert_parallel_kernel_says_what_it_does(kernel, operation, group):
    """Nothing else is recorded; some names say how many ranks take part."""
    frame = _asked("cpu 1 |[launch >a]\nstream 7 | [K <a ]", names={"K": kernel})

    assert _rows(frame, "operation", "group", "found_by", "is_rendezvous") == [
        [operation, f"expert parallel {group}", "library kernel", True]
    ]


@pytest.mark.parametrize(
    ("kernel", "operation"),
    [
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(int)", "all_reduce"),
        (
            "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(int)",
            "all_reduce",
        ),
        ("void multimem_all_gather_kernel<16>(int)", "all_gather"),
        ("void flashinfer::allreduce_fusion_kernel_oneshot_lamport<__half, 4>(int)", "all_reduce"),
        ("void quickreduce::allreduce_prototype_twoshot<quick_reduce<2>>(int)", "all_reduce"),
        ("void barrier_on_stream_kernel_nvshmem(int)", "barrier"),
        ("void nvshmemi_alltoall_on_stream_kernel<int>(int)", "all_to_all"),
    ],
)
def test_the_name_of_a_custom_kernel_says_what_it_does(kernel, operation):
    """Custom all-reduces, symmetric memory, NVSHMEM: who comes last is waited for."""
    frame = _asked("cpu 1 |[launch >a]\nstream 7 | [K <a ]", names={"K": kernel})

    assert _rows(frame, "operation", "is_rendezvous") == [[operation, True]]


@pytest.mark.parametrize(
    "kernel",
    [
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(int)",
        "void nvshmemi_transfer_rma<0>(int)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_a_kernel_whose_name_says_too_little_is_no_rendezvous(kernel):
    """Computation of a library, a transfer of one side, and what may be any collective of RCCL."""
    frame = _asked("cpu 1 |[launch >a]\nstream 7 | [K <a ]", names={"K": kernel})

    assert frame["is_rendezvous"].tolist() == [False]


def test_kernels_of_a_library_are_grouped_by_what_their_streams_run_whatever_their_numbers():
    """Streams 7 and 9 reduce, and one more gathers as well: two groups."""
    frame = _asked(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b][launch >c][launch >d]
        stream 7 |      [R <a ]
        stream 9 |                   [R <b ]
        stream 3 |                              [R <c ]    [G <d ]
        """,
        names={"R": "one_shot_all_reduce_kernel<4>(int)", "G": "multimem_all_gather_kernel(int)"},
    )

    assert frame["group"].tolist() == [
        *["custom all-reduce (all_reduce)"] * 2,
        *["custom all-reduce (all_gather, all_reduce)"] * 2,
    ]


def test_a_collective_goes_back_to_the_one_that_its_stream_had_to_finish():
    """The second starts when the first has ended."""
    frame = _asked("""
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [ncclAllReduce <a        ] [ncclAllReduce <b ]
    """)

    assert frame["after"].tolist() == [-1, 0]


def test_a_window_keeps_the_numbers_of_the_whole():
    """From 40 on, only the second runs."""
    frame = _asked(
        """
        us       |0         10        20        30        40        50
        cpu 1    |[launch >a][launch >b]
        stream 7 |      [ncclAllReduce <a        ] [ncclAllReduce <b ]
        """,
        Window(40_000, 50_000, "late"),
    )

    assert frame["collective"].tolist() == [1]


def test_a_list_of_ranks_that_fits_into_a_line_is_not_shortened():
    """18 ranks take 62 characters, 19 take 66."""
    assert short_group(str([*range(18)])) == str([*range(18)])
    assert short_group(str([*range(19)])) == "[0, 1, …, 18]"
