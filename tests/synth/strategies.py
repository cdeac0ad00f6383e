"""Random small programs and jobs, for laws that must hold on every trace."""

from __future__ import annotations

import hypothesis.strategies as st

from htagraph.compiler.structure import FEWEST_IDLE_LAUNCHES
from tests.synth.mechanisms import KINDS, inference_program
from tests.synth.program import (
    Action,
    Annotation,
    Clock,
    Collective,
    Group,
    HandOver,
    JobProgram,
    Launch,
    Machine,
    Op,
    Program,
    Record,
    Spend,
    StreamWait,
    Synchronize,
    Work,
)

_STREAMS = (7, 13, 20)
_EVENTS = ("event0", "event1", "event2")
_LONGEST_NS = 60_000
_WARM_UP_WORK = 40_000


def warm_up(stream: int = 7, n_idle: int = 1) -> tuple[Action, ...]:
    """Actions that show a reader the stream gap and the launch latency: a pair, idle launches."""
    first, second = (
        Work("warm_up_kernel", _WARM_UP_WORK + 3),
        Work("warm_up_kernel", _WARM_UP_WORK + 7),
    )
    launches = (Launch(first, stream, cost_ns=4_001), Launch(second, stream, cost_ns=4_003))
    idle: tuple[Action, ...] = (Spend(100_019), Launch(first, stream, cost_ns=4_007))
    return (
        Op("aten::warm_up", (*launches, *n_idle * idle)),
        Synchronize(),
    )


def _prelude() -> tuple[Action, ...]:
    """A warm-up after which every stream has had work and every event a record."""
    work = Work("warm_up_kernel", 1_009)
    used = tuple(Launch(work, stream) for stream in _STREAMS)
    recorded = tuple(Record(event, stream) for event, stream in zip(_EVENTS, _STREAMS, strict=True))
    # Drawn calls may take a nanosecond: only a measured launch latency is the true one.
    return (*warm_up(n_idle=FEWEST_IDLE_LAUNCHES), *used, *recorded, Synchronize())


def _durations() -> st.SearchStrategy[int]:
    """Durations from almost none to many times a launch; the simulator counts ties."""
    return st.integers(1, _LONGEST_NS)


def _flat_actions() -> st.SearchStrategy[tuple[Action, ...]]:
    """A few actions that touch the device or spend time; work that waits follows each wait."""
    streams, events, ns = st.sampled_from(_STREAMS), st.sampled_from(_EVENTS), _durations()
    names = st.sampled_from(
        ("ampere_sgemm_128x64_nn", "vectorized_elementwise_kernel", "Memset (Device)")
    )
    work = st.builds(Work, names, ns)
    copy = st.builds(Work, st.just("Memcpy DtoH (Device -> Pageable)"), ns, st.integers(4, 4_096))
    reduce = st.builds(Collective, st.just("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), ns)
    single = st.one_of(
        st.builds(Spend, ns),
        st.builds(Launch, st.one_of(work, reduce), streams, ns),
        st.builds(Launch, st.lists(work, min_size=2, max_size=4).map(tuple), streams, ns),
        st.builds(Launch, copy, streams, is_blocking=st.just(True)),
        st.builds(Record, events, streams, ns),
        st.builds(Synchronize),
        st.builds(Synchronize, stream=streams),
        st.builds(Synchronize, event=events),
    ).map(lambda action: (action,))
    waiting = st.builds(
        lambda event, stream, waits_ns, what, launch_ns: (
            StreamWait(event, stream, waits_ns),
            Launch(what, stream, launch_ns),
        ),
        events,
        streams,
        ns,
        work,
        ns,
    )
    several = st.lists(st.one_of(single, single, waiting), max_size=6)
    return several.map(lambda parts: tuple(action for part in parts for action in part))


def _backward(body: tuple[Action, ...], lead_ns: int) -> tuple[Action, ...]:
    """The handoff to a backward operator on another thread."""
    work = Op("autograd::engine::evaluate_function: MmBackward0", (Spend(lead_ns), *body))
    return (HandOver((work,), wake_ns=lead_ns),)


def programs(*, max_blocks: int = 6) -> st.SearchStrategy[Program]:
    """Random programs of one rank: operators, gaps, annotations, backward passes, three streams.

    They begin with `warm_up`, some work on every stream and a record of every event. Programs in
    which two causes release one instant are possible; a comparison of paths leaves out those
    with ``simulate(program).n_ties``.
    """
    ns, actions = _durations(), _flat_actions()
    op_names = st.sampled_from(
        ("aten::linear", "aten::relu", "enumerate(DataLoader)#_SingleProcess.__next__")
    )
    op = st.builds(Op, op_names, actions).map(lambda made: (made,))
    gap = ns.map(lambda length: (Spend(length),))
    backward = st.builds(_backward, actions, ns)
    annotated = st.builds(
        lambda body, length: (Annotation("forward", (Spend(length), *body)),), op, ns
    )
    blocks = st.lists(st.one_of(op, op, gap, actions, backward, annotated), max_size=max_blocks)
    body = blocks.map(lambda found: tuple(action for block in found for action in block))
    latency = st.integers(2_000, 12_000)
    machine = st.builds(
        Machine, latency, st.integers(200, 1_900), st.integers(0, 1_500), st.integers(500, 4_000)
    )
    return st.builds(
        lambda inner, made: Program((Annotation("ProfilerStep#0", (*_prelude(), *inner)),), made),
        body,
        machine,
    )


def inference_programs(*, kind: str | None = None) -> st.SearchStrategy[Program]:
    """Random realistic programs with waits that no record names (see `tests.synth.mechanisms`)."""
    kinds = st.sampled_from(KINDS) if kind is None else st.just(kind)
    return st.builds(inference_program, kinds, st.integers(0, 2**32 - 1))


def _member_body(
    draw_ns: list[int], transfers_ns: list[int], groups: list[Group], rank: int
) -> tuple[Action, ...]:
    """The actions of a rank between and in its collectives; `draw_ns` is consumed in turn.

    The members of a collective leave it within a third of its transfer, as those of NCCL do.
    """
    body: list[Action] = []
    for number, whole_ns in enumerate(transfers_ns):
        compute_ns, host_ns, more_ns = draw_ns[3 * number : 3 * number + 3]
        transfer_ns = whole_ns + more_ns % (whole_ns // 3)
        group = groups[number % len(groups)]
        if rank not in group.ranks:
            continue
        reduce = Collective(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", transfer_ns, group, n_elements=1 + number
        )
        compute = Op(
            "aten::linear", (Spend(997), Launch(Work("ampere_sgemm_128x64_nn", compute_ns)))
        )
        order = (Record("ready"), StreamWait("ready", 20))
        body += [Spend(host_ns), compute, Op("record_param_comms", (*order, Launch(reduce, 20)))]
    return (*body, Synchronize())


def jobs(
    *, max_ranks: int = 4, max_collectives: int = 6, max_offset_ns: int = 20_000_000
) -> st.SearchStrategy[JobProgram]:
    """Random jobs: ranks that compute, and all-reduces of the world and of halves of it."""

    @st.composite
    def job(draw: st.DrawFn) -> JobProgram:
        n_ranks = draw(st.integers(2, max_ranks))
        n_collectives = draw(st.integers(1, max_collectives))
        everybody = tuple(range(n_ranks))
        halves = (
            [Group("1", everybody[::2], "even"), Group("2", everybody[1::2], "odd")]
            if n_ranks > 3
            else []
        )
        groups = [Group("0", everybody), *draw(st.sampled_from([halves, []]))]
        numbers = st.lists(
            st.integers(1_000, 500_000), min_size=3 * n_collectives, max_size=3 * n_collectives
        )
        transfers_ns = draw(
            st.lists(st.integers(1_000, 500_000), min_size=n_collectives, max_size=n_collectives)
        )
        bodies = [
            (*warm_up(), *_member_body(draw(numbers), transfers_ns, groups, rank))
            for rank in everybody
        ]
        ranks = tuple(
            Program(
                (Annotation("ProfilerStep#0", body),),
                rank=rank,
                world_size=n_ranks,
                device=rank,
                groups=tuple(group for group in groups if rank in group.ranks),
            )
            for rank, body in enumerate(bodies)
        )
        offset, drift = st.integers(-max_offset_ns, max_offset_ns), st.integers(-5_000, 5_000)
        clocks = (Clock(), *(Clock(draw(offset), draw(drift)) for _ in everybody[1:]))
        return JobProgram(ranks, clocks)

    return job()


_NOTIFY = "void deep_ep::internode::notify_dispatch<false, 2>(int const*, int*, int)"
_EXPERTS = {
    "dispatch": "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*, int)",
    "combine": "void deep_ep::internode_ll::combine<false, 7168, 9>(void*, void*, int)",
}


def exchange(
    operation: str, group: Group, *dur_ns: int, stream: int = 20, between_ns: int = 0
) -> tuple[Action, ...]:
    """The launches of an exchange of experts, one kernel or two; it follows the compute stream."""
    parts = ("",) if len(dur_ns) == 1 else ("send", "receive")
    launches: list[Action] = []
    for half, length_ns in zip(parts, dur_ns, strict=True):
        kernel = Collective(_EXPERTS[operation], length_ns, group, operation, half=half)
        launches += [Record("ready"), StreamWait("ready", stream), Launch(kernel, stream)]
        if half == "send" and between_ns:
            launches.append(Launch(Work("ampere_sgemm_128x64_nn", between_ns)))
    done = (Record("done", stream), StreamWait("done", 7))
    return (*launches, *done)


def expert_layer(
    draw_ns: list[int], group: Group, *, is_split: bool, notifies: bool
) -> tuple[Action, ...]:
    """The actions of a layer of experts: compute, dispatch, compute, combine."""
    host_ns, first_ns, second_ns, between_ns, *transfers_ns = draw_ns
    compute = Launch(Work("ampere_sgemm_128x64_nn", first_ns))
    experts = Launch(Work("grouped_gemm_kernel", second_ns))
    notify = (
        Record("ready"),
        StreamWait("ready", 20),
        Launch(Collective(_NOTIFY, 4_007, group, "notify"), 20),
    )
    halves = 2 if is_split else 1
    return (
        Spend(host_ns),
        Op("aten::linear", (Spend(997), compute)),
        *(notify if notifies else ()),
        *exchange("dispatch", group, *transfers_ns[:halves], between_ns=between_ns),
        Op("aten::experts", (Spend(991), experts)),
        *exchange("combine", group, *transfers_ns[2 : 2 + halves], between_ns=between_ns),
    )


def expert_jobs(
    *,
    max_ranks: int = 4,
    max_layers: int = 4,
    max_offset_ns: int = 20_000_000,
    max_drift_ppb: int = 0,
) -> st.SearchStrategy[JobProgram]:
    """Random jobs of expert-parallel ranks, of which nothing is recorded but kernels.

    Every rank takes its own time in each dispatch and combine, which are one kernel each, or two in
    all; a barrier may come before each dispatch.
    """

    @st.composite
    def job(draw: st.DrawFn) -> JobProgram:
        n_ranks, n_layers = draw(st.integers(2, max_ranks)), draw(st.integers(1, max_layers))
        is_split, notifies = draw(st.booleans()), draw(st.booleans())
        group = Group("0", tuple(range(n_ranks)))
        numbers = st.lists(st.integers(1_000, 300_000), min_size=8, max_size=8)
        ranks = []
        for rank in group.ranks:
            layers = (
                action
                for _ in range(n_layers)
                for action in expert_layer(
                    draw(numbers), group, is_split=is_split, notifies=notifies
                )
            )
            body = (Annotation("ProfilerStep#0", (*warm_up(), *layers, Synchronize())),)
            ranks.append(Program(body, rank=rank, world_size=n_ranks, device=rank))
        offset = st.integers(-max_offset_ns, max_offset_ns)
        drift = st.integers(-max_drift_ppb, max_drift_ppb)
        clocks = (Clock(), *(Clock(draw(offset), draw(drift)) for _ in group.ranks[1:]))
        return JobProgram(tuple(ranks), clocks)

    return job()
