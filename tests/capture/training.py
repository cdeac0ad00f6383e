"""python training.py CASE FOLDER [WORLD_SIZE]: a real training, recorded for one test case."""

from __future__ import annotations

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.profiler import profile, schedule

import htagraph as hg

CYCLE = {"wait": 1, "warmup": 1, "active": 2}
N_STEPS = 10
DYING = 2


def handled(folder: str, case: str, **options: object) -> profile:
    """Profiler that someone has set up, with our handler."""
    plans = {"plain": None, "stack": None, "endless": schedule(**CYCLE)}
    plan = plans.get(case, schedule(**CYCLE, repeat=2 if case == "two" else 1))
    ready = hg.handler(folder, report=case != "two", timeout_s=5)
    return profile(schedule=plan, on_trace_ready=ready, with_stack=case == "stack", **options)


def train(case: str, folder: str, model: nn.Module, rank: int = 0) -> None:
    """Train; rank 1 is late, and rank 2 may never arrive."""
    block, _, number = case.partition("-")
    n_steps = int(number or N_STEPS)
    if block in ("block", "keep"):
        own = hg.profile(folder, keep=f"{folder}/kept" if block == "keep" else None)
    else:
        own = handled(folder, case)
    with own as profiler:
        for step in range(n_steps or 1):
            if rank == 1:
                time.sleep(0.05)
            model(torch.randn(16, 64)).sum().backward()
            if case == "dies" and step == CYCLE["wait"] + CYCLE["warmup"]:
                if rank == DYING:
                    os._exit(7)
                break
            if case == "interrupted" and step == CYCLE["wait"] + CYCLE["warmup"] + 1:
                raise KeyboardInterrupt
            if n_steps:
                profiler.step()


def rank_of_job(rank: int, case: str, folder: str, world_size: int, port: int) -> None:
    """Train as one rank of several."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(case, folder, nn.parallel.DistributedDataParallel(network()), rank)
    if case != "dies":
        dist.destroy_process_group()


def network() -> nn.Module:
    """Build a small model."""
    torch.set_num_threads(1)
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))


if __name__ == "__main__":
    asked, into, *sizes = sys.argv[1:]
    if sizes:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = (asked, into, int(sizes[0]), port)
        spawned = multiprocessing.start_processes(
            rank_of_job, arguments, nprocs=int(sizes[0]), join=False, start_method="spawn"
        )
        for process in spawned.processes:
            process.join()
    else:
        train(asked, into, network())
        print("trained", flush=True)
