"""SYNC edges: host calls and streams that wait for device work."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from htagraph.compiler.passes import compile_events
from htagraph.model.symbols import SymbolTable
from htagraph.synth import timeline
from tests.drawn import drawn_dag


def test_a_device_synchronize_without_records_waits_for_what_ended_while_it_ran(arrows, rules):
    """Without cuda_sync records, the call's meaning and the times say what it waited for."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][launch >b][sync                 ]
        stream 7 |     [k1 <a         ]
        stream 9 |              [k2 <b                     ]
    """)

    assert arrows(dag, "sync") == [("k2>", "cudaDeviceSynchronize>", 0)]
    assert rules(dag, "sync") == {"cudaDeviceSynchronize>": "call semantics"}


def test_work_launched_after_a_synchronize_began_is_not_waited_for(arrows):
    """Another thread may launch meanwhile; that work is not covered."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][sync                  ]
        cpu 2    |              [launch >b]
        stream 7 |     [k1 <a          ]
        stream 9 |                  [k2 <b ]
    """)

    assert arrows(dag, "sync") == [("k1>", "cudaDeviceSynchronize>", 0)]


def test_a_recorded_stream_sync_names_its_stream(arrows):
    """The record says stream 7, so what ends later on stream 9 does not matter."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][launch >b][streamsync @7  ]
        stream 7 |     [k1 <a               ]
        stream 9 |              [k2 <b         ]
    """)

    assert arrows(dag, "sync") == [("k1>", "cudaStreamSynchronize>", 0)]


def test_a_recorded_event_sync_waits_for_what_came_before_the_record(arrows):
    """Work enqueued after the event was recorded is not covered by it."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][record !r @7][launch >b][eventsync ?r     ]
        stream 7 |     [k1 <a                                      ][k2 <b ]
    """)

    assert arrows(dag, "sync") == [("k1>", "cudaEventSynchronize>", 0)]


def test_a_stream_waits_for_an_event_of_another(arrows):
    """The next work of stream 9 waits for the work of stream 7 enqueued before the record."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][record !r @7][wait ?r @9][launch >b]
        stream 7 |     [k1 <a                                          ]
        stream 9 |                                                       [k2 <b ]
    """)

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]


def test_an_event_may_be_recorded_by_another_thread_than_that_which_launches(arrows):
    """Its record is the first call of the file."""
    dag = drawn_dag("""
        cpu 2    |           [record !r @7][wait ?r @9][launch >b]
        cpu 1    |[launch >a]
        stream 7 |     [k1 <a                                          ]
        stream 9 |                                                                  [k2 <b ]
    """)

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]


def test_a_wait_holds_up_nothing_that_its_stream_had_been_given_before(arrows):
    """What comes to stream 9 after the wait was not recorded."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][launch >b][record !r @7][wait ?r @9]
        stream 7 |     [k1 <a                                  ]
        stream 9 |                                                               [k2 <b ]
    """)

    assert arrows(dag, "sync") == []


def test_record_and_wait_are_paired_by_order_when_nothing_names_them(arrows, rules):
    """Most traces have the calls but no cuda_sync records; the order of calls on a thread tells."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][cudaEventRecord][cudaStreamWaitEvent][launch >b]
        stream 7 |     [k1 <a                                              ]
        stream 9 |                                                             [k2 <b ]
    """)

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]
    assert rules(dag, "sync") == {"k2<": "record and wait order"}


def test_without_inference_only_what_is_recorded_joins(arrows):
    """Launches are recorded by their correlation; the order of calls is no record."""
    events = timeline("""
        cpu 1    |[launch >a][cudaEventRecord][cudaStreamWaitEvent][launch >b]
        stream 7 |     [k1 <a                                              ]
        stream 9 |                                                             [k2 <b ]
    """)
    dag = compile_events(events, infer=False)

    assert arrows(dag, "sync") == []
    assert len(arrows(dag, "launch")) == 2


def test_a_wait_without_any_call_is_inferred_from_time(arrows, rules):
    """Work that was ready stood still until all earlier work of stream 7 had ended."""
    dag = drawn_dag(
        """
        cpu 1    |[launch >w] [launch >a][launch >b]
        stream 7 |    [w <w]       [k1 <a                                                  ]
        stream 9 |                                                                          [k2 <b]
        """
    )

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]
    assert rules(dag, "sync") == {"k2<": "ended right before"}


def test_a_copy_from_the_device_holds_its_call(arrows, rules):
    """aten::item copies to pageable memory: the call returns after the copy has ended."""
    dag = drawn_dag(
        """
        cpu 1    |[launch >a][copy >c                     ]
        stream 7 |     [k1 <a               ][M <c]
        """,
        names={"M": "Memcpy DtoH (Device -> Pageable)"},
    )

    assert arrows(dag, "sync") == [("Memcpy DtoH (Device -> Pageable)>", "cudaMemcpyAsync>", 0)]
    assert rules(dag, "sync") == {"cudaMemcpyAsync>": "synchronous copy"}


def test_an_event_query_waits_for_nothing(arrows):
    """It leaves an Event Sync record like a wait does, but returns at once."""
    dag = drawn_dag("""
        cpu 1    |[launch >a][record !r @7][cudaEventQuery ?r]
        stream 7 |     [k1 <a                     ]
    """)

    assert arrows(dag, "sync") == []


def test_an_event_passes_on_what_its_stream_waits_for(arrows):
    """Stream 9 only waits since its last work; an event recorded there comes after that wait."""
    dag = drawn_dag(
        """
        cpu 1    |[L >z][L >a][record !r @7][wait ?r @9][record !s @9][wait ?s @11][L >b]
        stream 9 |    [z <z ]
        stream 7 |          [k1 <a                                                         ]
        stream 11|                                                                          [k2 <b ]
        """,
        names={"L": "cudaLaunchKernel"},
    )

    assert ("k1>", "k2<", 0) in arrows(dag, "sync")


def test_a_wait_is_followed_through_as_many_streams_as_there_are(arrows):
    """Each of twelve streams has only waited for the one before it since its first work."""
    calls = "".join(f"[launch >z{k}]" for k in range(1, 12)) + "[launch >a]"
    calls += "".join(f"[record !r{k} @{k}][wait ?r{k} @{k + 1}]" for k in range(11))
    first = "\n".join(f"stream {k} |{'':{13 * k}}[z <z{k}]" for k in range(1, 12))
    dag = drawn_dag(f"""
        cpu 1    |{calls}[launch >b]
        stream 0 |{"":170}[k1 <a {"":500}]
        {first}
        stream 11|{"":980}[k2 <b ]
    """)

    assert arrows(dag, "sync") == [("k1>", "k2<", 0)]


def test_a_wait_that_no_launch_follows_joins_nothing(arrows):
    """Nor does one whose event was recorded before the first launch."""
    dag = drawn_dag("""
        cpu 1    |[cudaEventRecord][cudaStreamWaitEvent][launch >b]
        cpu 2    |[launch >a][cudaEventRecord][cudaStreamWaitEvent]
        stream 7 |     [k1 <a         ]
        stream 9 |                                                      [k2 <b ]
    """)

    assert arrows(dag, "sync") == []


def test_the_record_of_a_wait_may_come_before_its_call_in_the_file(arrows):
    """A record and its call have one correlation id."""
    drawing = """
        cpu 1    |[launch >a][launch >b][streamsync @7  ]
        stream 7 |     [k1 <a               ]
        stream 9 |              [k2 <b         ]
    """
    events = timeline(drawing)
    columns = {item.name: getattr(events, item.name) for item in fields(events)}
    turned = {
        name: column[::-1] for name, column in columns.items() if isinstance(column, np.ndarray)
    }
    dag = compile_events(replace(events, **turned))

    assert arrows(dag, "sync") == [("k1>", "cudaStreamSynchronize>", 0)]


def test_a_record_whose_name_means_nothing_leaves_the_meaning_of_its_call(rules):
    """The profiler calls a wait "Unknown": the call still is one for the device."""
    events = timeline("""
        cpu 1    |[launch >a][sync @*                  ]
        stream 7 |     [k1 <a         ]
    """)
    unknown = [text.replace("Context Sync", "Unknown") for text in events.symbols.texts]
    dag = compile_events(replace(events, symbols=SymbolTable(unknown)))

    assert rules(dag, "sync") == {"cudaDeviceSynchronize>": "call semantics"}
