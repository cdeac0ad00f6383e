"""Random realistic programs, one mechanism each: steps of layers that recur, with jitter.

A program is some sections, each drawn once, that every step goes through with other durations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.synth.draw import Draw
from tests.synth.program import (
    Action,
    Annotation,
    Call,
    Collective,
    Delegate,
    Free,
    Graph,
    GraphNode,
    HandOver,
    Machine,
    Op,
    Poll,
    Program,
    Receive,
    Reclaim,
    Record,
    Replay,
    Spend,
    StreamWait,
    Synchronize,
)

KINDS = (
    "replays",
    "stripped waits",
    "late ends",
    "full device",
    "polls",
    "allocator",
    "workers",
    "queues",
    "servers",
    "before the capture",
    "full queue",
    "nothing",
    "mixture",
)
"""What a program plants; ``nothing`` has no wait that no record names."""

_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
_POINTWISE = "void at::native::vectorized_elementwise_kernel<4, AddFunctor>"
_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_REDUCE = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_NOTIFY = "deep_ep::internode::notify_dispatch<false, 8>"
_ON_CPU = ("aten::sort", "aten::linear", "aten::embedding", "aten::add")
_EMBEDDING = "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1"

Section = Callable[[], tuple[Action, ...]]


# Sections


def _eager(draw: Draw) -> Section:
    """Small operators that the host hardly keeps up with: what shows a reader its scales."""
    sizes = [(draw.ns(4, 20), draw.ns(8, 60)) for _ in range(draw.random.randint(4, 8))]

    def section() -> tuple[Action, ...]:
        return tuple(
            Op("aten::add", (draw.spend(host_ns), draw.launch(_POINTWISE, dur_ns), Spend(900)))
            for dur_ns, host_ns in sizes
        )

    return section


def _replays(draw: Draw) -> Section:
    """A graph of layers, of which each forks to another stream and joins it; one stream is free."""
    layers = [
        (draw.ns(3, 12), draw.ns(10, 120), draw.ns(15, 160), draw.ns(8, 60))
        for _ in range(draw.random.randint(3, 8))
    ]
    side = draw.random.choice((_REDUCE, "deep_ep::intranode::dispatch<8, 768, 8192>"))
    has_names, has_free, has_nodes = draw.chance(0.5), draw.chance(0.5), draw.chance(0.4)
    free = [draw.ns(5, 90) for _ in range(6)]
    named = draw.random.randint(1, 99)

    def graph() -> Graph:
        nodes: list[GraphNode] = []
        for number, (norm_ns, gemm_ns, side_ns, after_ns) in enumerate(layers):
            name = f"{_GEMM}_{number}" if has_names else _GEMM
            at = len(nodes)
            nodes += [
                GraphNode(draw.work("rms_norm_kernel", norm_ns), 7),
                GraphNode(Collective(side, draw.about(side_ns)), 20, (at,)),
                GraphNode(draw.work(name, gemm_ns), 7),
                GraphNode(draw.work("moe_combine_kernel", after_ns), 7, (at + 1,)),
            ]
        nodes += [GraphNode(draw.work("copy_kernel", ns), 24) for ns in free * has_free]
        return Graph(tuple(nodes), named, records_nodes=has_nodes)

    def section() -> tuple[Action, ...]:
        return (draw.spend(30_000), Replay(graph(), cost_ns=draw.about(12_000)))

    return section


def _stream_waits(draw: Draw) -> Section:
    """Layers whose weights are gathered, and gradients reduced, on streams of their own."""
    layers = [
        (draw.ns(30, 300), draw.ns(20, 250), draw.ns(20, 250), draw.ns(20, 200))
        for _ in range(draw.random.randint(3, 6))
    ]

    def section() -> tuple[Action, ...]:
        actions: list[Action] = []
        for gather_ns, first_ns, second_ns, reduce_ns in layers:
            actions += [
                Op("c10d::_allgather_base_", (draw.meeting(_GATHER, gather_ns, 20),)),
                Record("gathered", 20),
                StreamWait("gathered", 7),
                Op("aten::mm", (draw.spend(6_000), draw.launch(_GEMM, first_ns))),
                Op("aten::add", (draw.spend(5_000), draw.launch(_POINTWISE, second_ns))),
                Record("computed", 7),
                StreamWait("computed", 22),
                Op("c10d::_reduce_scatter_base_", (draw.meeting(_REDUCE, reduce_ns, 22),)),
            ]
        return tuple(actions)

    return section


def _full_device(draw: Draw) -> Section:
    """A long kernel of very many blocks, and work of another stream that is ready, and needed."""
    long_ns, n_blocks = draw.ns(200, 3_000), draw.random.randint(5_000, 60_000)
    small = [draw.ns(3, 120) for _ in range(draw.random.randint(2, 5))]

    def section() -> tuple[Action, ...]:
        beside = [
            Op("fbgemm::permute_2D_sparse_data", (draw.spend(9_000), draw.launch(name, ns, 20, 8)))
            for name, ns in zip(
                ["permute_2D_lengths_kernel", *[_POINTWISE] * 9], small, strict=False
            )
        ]
        return (
            Op("split_embedding", (draw.launch(_EMBEDDING, long_ns, 7, n_blocks),)),
            *beside,
            Record("permuted", 20),
            StreamWait("permuted", 7),
            Op("aten::mm", (draw.spend(9_000), draw.launch(_GEMM, 60_000))),
        )

    return section


def _polls(draw: Draw) -> Section:
    """Layers in which the host spins until a kernel tells it how much will come."""
    layers = [(draw.ns(20, 200), draw.ns(40, 400)) for _ in range(draw.random.randint(2, 5))]
    before_ns = draw.ns(5, 40) if draw.chance(0.5) else 0
    in_op, stream = draw.chance(0.5), draw.random.choice((7, 20))
    reads, reduce_ns = draw.chance(0.4), draw.ns(20, 400)

    def of_autograd() -> tuple[Action, ...]:
        """A value read off the device after a backward pass, which another thread launches."""
        backward = Op(
            "autograd::engine::evaluate_function: EmbeddingBackward0",
            (draw.spend(9_000), draw.launch(_EMBEDDING, layers[0][1], 9)),
        )
        return (
            HandOver((backward,), 2, wake_ns=draw.about(20_000), thread_name="pt_autograd_0"),
            draw.meeting(_REDUCE, reduce_ns, 22),
            Op("aten::item", (Poll(9, return_ns=draw.about(4_000)), draw.spend(3_000))),
        )

    def section() -> tuple[Action, ...]:
        actions = list(of_autograd()) if reads else []
        for gemm_ns, notify_ns in layers:
            before = min(draw.about(before_ns), notify_ns // 2) if before_ns else 0
            wait = (Poll(stream, before_ns=before, return_ns=draw.about(1_500)), draw.spend(3_000))
            notify = draw.meeting(_NOTIFY, notify_ns, stream)
            actions += [
                Op("aten::mm", (draw.spend(6_000), draw.launch(_GEMM, gemm_ns))),
                *((Op("deep_ep::dispatch", (notify, *wait)),) if in_op else (notify, *wait)),
                Op("aten::add", (draw.spend(4_000), draw.launch(_POINTWISE, 8_000))),
            ]
        return tuple(actions)

    return section


def _retries(draw: Draw) -> Section:
    """Layers whose outputs do not fit: the allocator waits for a collective, or for what runs on.

    Meanwhile the device works off what else was launched: nothing waits for that.
    """
    layers = [
        (draw.ns(1_000, 9_000), [draw.ns(5, 900) for _ in range(draw.random.randint(1, 20))])
        for _ in range(draw.random.randint(1, 3))
    ]
    streams = draw.random.choice(((20,), (7, 20)))
    return_ns, cost_ns = draw.ns(12, 95), draw.ns(60, 900)

    def section() -> tuple[Action, ...]:
        actions: list[Action] = []
        for gather_ns, kernels in layers:
            frees = tuple(Free(draw.about(cost_ns)) for _ in range(draw.random.randint(1, 5)))
            malloc = Call("cudaMalloc", draw.about(100_000))
            retry = (malloc, Reclaim(streams, draw.about(return_ns)), *frees, malloc)
            actions += [
                Op("c10d::_allgather_base_", (draw.meeting(_GATHER, gather_ns, 20),)),
                *(Op("aten::mm", (draw.spend(9_000), draw.launch(_GEMM, ns))) for ns in kernels),
                Op("aten::cat", (draw.spend(5_000), *retry, draw.launch(_POINTWISE, 20_000))),
            ]
        return tuple(actions)

    return section


def _workers(draw: Draw) -> Section:
    """Batches pinned and copied by a worker thread, and backward passes by another."""
    pin_ns, copy_ns, layers = draw.ns(30, 300), draw.ns(20, 200), draw.random.randint(2, 4)
    wake_ns, kernel_ns = draw.ns(5, 40), draw.ns(8, 40)
    pin_name, autograd_name = (
        ("pt_data_pin", "pt_autograd_0") if draw.chance(0.6) else ("python", "python")
    )

    def section() -> tuple[Action, ...]:
        copy = draw.launch("Memcpy HtoD (Pinned -> Device)", copy_ns, 9)
        pin = (Op("aten::pin_memory", (draw.spend(pin_ns),)), copy, Record("batch", 9))
        backward = tuple(
            Op(
                "autograd::engine::evaluate_function: MmBackward0",
                (draw.spend(9_000), draw.launch(_GEMM, kernel_ns), Spend(1_500)),
            )
            for _ in range(layers)
        )
        return (
            Delegate(pin, 3, wake_ns=draw.about(wake_ns), thread_name=pin_name),
            StreamWait("batch", 7),
            Op("aten::linear", (draw.spend(20_000), draw.launch(_GEMM, kernel_ns))),
            draw.spend(15_000),
            HandOver(backward, 2, wake_ns=draw.about(wake_ns), thread_name=autograd_name),
            draw.spend(12_000),
            Op("aten::_foreach_add_", (draw.spend(9_000), draw.launch(_POINTWISE, kernel_ns))),
        )

    return section


def _queues(draw: Draw) -> Section:
    """Requests that a thread passes to others, one after the other, until it has an answer."""
    stages = [
        [(draw.random.choice(_ON_CPU), draw.ns(2, 900)) for _ in range(draw.random.randint(1, 12))]
        for _ in range(draw.random.randint(1, 3))
    ]
    wake_ns, rest_ns = draw.ns(20, 150), draw.ns(5, 3_000)

    def stage(number: int) -> tuple[Action, ...]:
        """What a thread does for a request, and after it the threads behind it."""
        if number == len(stages):
            return ()
        ops = tuple(Op(name, (draw.spend(ns),)) for name, ns in stages[number])
        wake = draw.about(wake_ns)
        body = (*ops, *stage(number + 1), Op("aten::cat", (draw.spend(4_000),)))
        name = ("tokenize", "infer", "answer")[number]
        return (HandOver(body, 21 + number, wake, name), Spend(draw.about(wake)))

    def section() -> tuple[Action, ...]:
        request = (Op("aten::empty", (draw.spend(3_000),)), *stage(0))
        return tuple(
            action
            for _ in range(draw.random.randint(2, 5))
            for action in (Annotation("request", request), Spend(draw.ns(2, rest_ns / 500)))
        )

    return section


def _steady_threads(draw: Draw) -> tuple[Action, ...]:
    """Threads that work at one rhythm, near each other, and know nothing of each other."""
    period_ns, near_ns = draw.ns(500, 5_000), draw.ns(5, 200)
    return tuple(
        Delegate(
            tuple(
                action
                for _ in range(20)
                for action in (
                    Op(f"{name}_{thread}", (draw.spend(9_000),)),
                    Spend(period_ns - 9_000 + draw.random.randint(0, 2_000)),
                )
            ),
            thread,
            wake_ns=near_ns * (thread - 5),
        )
        for thread, name in ((6, "sample"), (7, "report"))
    )


def _own_time(draw: Draw) -> Section:
    """Time of the host itself beside a busy device: what looks like a wait, and is none."""
    names = ("json.loads", "gc.collect", "aten::copy_", "")
    gaps = [(draw.ns(40, 2_000), draw.random.choice(names)) for _ in range(3)]
    kernels = [draw.ns(20, 400) for _ in range(draw.random.randint(3, 9))]
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    load_ns, near_ns = draw.ns(50, 900), draw.ns(60, 600)

    def section() -> tuple[Action, ...]:
        actions: list[Action] = [
            Op("aten::mm", (draw.spend(5_000), draw.launch(_GEMM, ns, draw.random.choice((7, 20)))))
            for ns in kernels
        ]
        for ns, name in gaps:
            # A collection of garbage, or a lock, takes any time.
            own = Spend(draw.ns(ns / 2e3, ns / 500))
            actions.insert(draw.random.randrange(len(actions)), Op(name, (own,)) if name else own)
        # What it allocates for a while is freed, but nothing was short of memory.
        scratch = (Call("cudaMalloc", 60_000), draw.spend(load_ns), Free(60_000))
        actions.insert(draw.random.randrange(len(actions)), Op("sort_by_key", scratch))
        # About as long as the kernel beside it, but neither knows of the other.
        near = (draw.launch(_GEMM, near_ns), draw.spend(near_ns))
        return (Annotation(loader, (draw.spend(load_ns),)), *actions, *near, Op("aten::size"))

    return section


def _free_streams(draw: Draw) -> Section:
    """Kernels back to back on two streams that do not wait for each other."""
    kernels = [(draw.ns(5, 60), draw.random.choice((7, 20))) for _ in range(12)]

    def section() -> tuple[Action, ...]:
        return tuple(
            Op("aten::add", (draw.spend(4_000), draw.launch(_POINTWISE, ns, stream)))
            for ns, stream in kernels
        )

    return section


def _free_thread(draw: Draw) -> tuple[Action, ...]:
    """A thread that works and sleeps at its own pace, all the time."""
    return tuple(
        action
        for _ in range(12)
        for action in (Op("prefetch", (Spend(draw.ns(20, 200)),)), Spend(draw.ns(100, 2_000)))
    )


def _servers(draw: Draw) -> tuple[Action, ...]:
    """Threads of a pool that serve requests as they arrive."""
    wait_ns, serve_ns = draw.ns(200, 2_000), draw.ns(30, 300)
    return tuple(
        Delegate(
            tuple(
                action
                for _ in range(6)
                for action in (
                    Receive(draw.ns(wait_ns / 2e3, wait_ns / 500)),
                    _served(draw, serve_ns),
                )
            ),
            11 + number,
            thread_name=f"exec{number}",
        )
        for number in range(draw.random.randint(3, 5))
    )


def _served(draw: Draw, serve_ns: int) -> Action:
    """One request."""
    return Annotation("Stage::request", (Op("aten::cat", (draw.spend(serve_ns),)),))


def _many_launches(draw: Draw) -> tuple[Action, ...]:
    """More launches than fit into the queue."""
    return tuple(draw.launch(_POINTWISE, 12_000) for _ in range(draw.random.randint(1_450, 1_700)))


# Programs


def _sections(kind: str, draw: Draw) -> Sequence[Section]:
    """What each step of a program goes through."""
    made: dict[str, Callable[[], Section]] = {
        "replays": lambda: _replays(draw),
        "stripped waits": lambda: _stream_waits(draw),
        "late ends": lambda: draw.random.choice((_replays, _stream_waits))(draw),
        "full device": lambda: _full_device(draw),
        "polls": lambda: _polls(draw),
        "allocator": lambda: _retries(draw),
        "workers": lambda: _workers(draw),
        "queues": lambda: _queues(draw),
        "nothing": lambda: draw.random.choice((_own_time, _free_streams))(draw),
    }
    if kind == "mixture":
        kinds = draw.random.sample(sorted(set(made) - {"queues"}), draw.random.randint(2, 4))
    elif kind == "before the capture":
        # Work of a free stream does not wait for what came before the capture.
        kinds = draw.random.choice(([], ["replays"], ["replays"], ["nothing"]))
    else:
        kinds = [kind if kind in made else "nothing"]
    eager = [] if kind == "queues" and draw.chance(0.5) else [_eager(draw)]
    return [*eager, *(made[name]() for name in kinds)]


def _machine(kind: str, draw: Draw) -> Machine:
    """A machine with latencies of its own."""
    machine = Machine(
        launch_latency_ns=draw.ns(4, 10),
        stream_gap_ns=draw.ns(0.4, 1.5),
        stream_wait_ns=draw.ns(0.3, 1.5),
        sync_return_ns=draw.ns(1, 4),
        jitter_ns=draw.ns(0.3, 1.5),
    )
    if kind == "late ends" or (kind == "mixture" and draw.chance(0.5)):
        late_ns = draw.ns(0.5, 2.5)
        machine = replace(machine, late_end_ns=late_ns, late_across_streams=draw.chance(0.5))
    if kind in ("full device", "mixture") or draw.chance(0.5):
        machine = replace(machine, n_sms=draw.random.choice((80, 108, 132)), drain_spread=0.4)
    return machine


def _before(kind: str, draw: Draw) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """What runs before the capture, and what the capture begins with."""
    if kind != "before the capture" and not (kind == "mixture" and draw.chance(0.3)):
        return (), ()
    old = tuple(draw.launch(_GEMM, draw.ns(200, 900)) for _ in range(draw.random.randint(5, 40)))
    tiny = tuple(
        draw.launch("Memcpy HtoD (Pageable -> Device)", 1_500, 9)
        for _ in range(draw.random.randint(0, 3))
    )
    return (*old, draw.spend(20_000)), tiny


def inference_program(kind: str, seed: int) -> Program:
    """A random program of a kind, the same for the same seed."""
    draw = Draw.of(f"{kind} {seed}")
    machine, sections = _machine(kind, draw), _sections(kind, draw)
    before, body = _before(kind, draw)
    is_waited = draw.chance(0.7)
    if kind == "nothing" and draw.chance(0.5):
        body = (*body, Delegate(_free_thread(draw), 5, thread_name="prefetcher"))
    if kind == "nothing" and draw.chance(0.5):
        body = (*body, *_steady_threads(draw))
    if kind == "servers":
        body = (*body, *_servers(draw))
    for number in range(draw.random.randint(3, 6)):
        inside = tuple(action for section in sections for action in section())
        end: tuple[Action, ...] = (Synchronize(),) if is_waited else ()
        if kind == "full queue" and number == 0:
            end = (*_many_launches(draw), *end)
        pause = Call("cudaEventQuery", draw.about(2_000))
        body = (*body, Annotation(f"ProfilerStep#{number}", (*inside, *end, pause)), Spend(2_000))
    has_calls = draw.chance(0.5)
    return Program(
        (*body, Synchronize()),
        machine,
        before=before,
        sync_records=kind == "nothing" and draw.chance(0.5),
        sync_calls=has_calls,
        geometry=draw.chance(0.7),
        metadata=draw.random.choice(("none", "seq")),
        seed=seed,
    )
