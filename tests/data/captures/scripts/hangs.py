"""Record Flight Recorder dumps of planted hangs over gloo: python hangs.py FOLDER [CASE ...]."""
import datetime
import os
import sys
import threading
import time
from pathlib import Path

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"
WORLD = 3
TIMEOUT_S = 4
LIMIT = datetime.timedelta(seconds=TIMEOUT_S)


def missing_member(rank, dist, torch):  # rank 1 never enters all_reduce 3
    for i in range(2):
        dist.all_reduce(torch.ones(8 + i))
    if rank != 1:
        dist.all_reduce(torch.ones(100))
    else:
        time.sleep(TIMEOUT_S + 1)


def other_order(rank, dist, torch):  # rank 2 swaps two collectives
    dist.all_reduce(torch.ones(8))
    out = [torch.ones(8) for _ in range(WORLD)]
    calls = [lambda: dist.all_reduce(torch.ones(8)), lambda: dist.all_gather(out, torch.ones(8))]
    for call in reversed(calls) if rank == 2 else calls:
        call()


def other_size(rank, dist, torch):  # rank 0 reduces 65 elements
    dist.all_reduce(torch.ones(8))
    dist.all_reduce(torch.ones(65 if rank == 0 else 64))


def other_dtype(rank, dist, torch):  # rank 2 reduces doubles
    dist.all_reduce(torch.ones(8))
    dist.all_reduce(torch.ones(64, dtype=torch.float64 if rank == 2 else torch.float32))


def crashed(rank, dist, torch):  # rank 2 dies before all_reduce 2, without a dump
    dist.all_reduce(torch.ones(8))
    if rank == 2:
        time.sleep(0.3)
        os._exit(1)
    dist.all_reduce(torch.ones(64))


def slow(rank, dist, torch):  # no hang: rank 1 is late every time, dumps come meanwhile
    for _ in range(3):
        if rank == 1:
            time.sleep(0.8)
        dist.all_reduce(torch.ones(64))


def subgroup(rank, dist, torch):  # rank 2 never enters all_gather 1 of [0, 2]; rank 1 waits in all
    group = dist.new_group([0, 2], LIMIT, group_desc="shards")
    dist.all_reduce(torch.ones(8))
    if rank == 0:
        dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4), group=group)
    if rank == 2:
        time.sleep(TIMEOUT_S + 1)
        return
    dist.all_reduce(torch.ones(64))


def crossed(rank, dist, torch):  # rank 0 enters group a first, rank 1 group b
    a, b = (dist.new_group([0, 1], LIMIT, group_desc=name) for name in "ab")
    dist.all_reduce(torch.ones(8))
    if rank == 2:
        return
    for group in (a, b) if rank == 0 else (b, a):
        dist.all_reduce(torch.ones(16), group=group)


def no_barrier(rank, dist, torch):  # rank 1 skips a barrier and reduces
    dist.all_reduce(torch.ones(8))
    if rank != 1:
        dist.barrier()
    dist.all_reduce(torch.ones(64))


def left_early(rank, dist, torch):  # rank 0 has one batch less
    for _ in range(3 if rank == 0 else 4):
        dist.all_reduce(torch.ones(64))


CASES = (missing_member, other_order, other_size, other_dtype, crashed, slow, subgroup, crossed,
         no_barrier, left_early)


def dump(folder, rank):
    from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
    if rank == 0 and folder.name in ("missing_member", "slow"):  # one rank as JSON
        (folder / f"nccl_trace_rank_{rank}.json").write_bytes(_dump_fr_trace_json())
    else:
        (folder / f"nccl_trace_rank_{rank}").write_bytes(_dump_fr_trace())


def run(rank, case, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=LIMIT)
    if case is slow:
        threading.Timer(1.2, dump, (folder, rank)).start()
    try:
        case(rank, dist, torch)
    except Exception as error:
        print(case.__name__, rank, str(error)[:150].replace("\n", " "), flush=True)
    if case is not slow:
        dump(folder, rank)
        time.sleep(TIMEOUT_S + 2)  # others must not see it leave
    time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    import torch.multiprocessing as mp
    for port, case in enumerate(CASES, 20000 + os.getpid() % 9000):
        if sys.argv[2:] and case.__name__ not in sys.argv[2:]:
            continue
        folder = Path(sys.argv[1]) / case.__name__
        folder.mkdir(parents=True, exist_ok=True)
        ranks = [mp.get_context("spawn").Process(target=run, args=(rank, case, folder, port))
                 for rank in range(WORLD)]
        [one.start() for one in ranks]
        [one.join(60) for one in ranks]
