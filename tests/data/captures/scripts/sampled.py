"""Two steps of four micro-batches, the third one larger, sampled: sampled.py FOLDER"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.profiler import record_function

import htagraph as hg

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
batches = [torch.randn(1024 if number == 2 else 256, 64) for number in range(4)]
pool = ThreadPoolExecutor(1)


def decode():
    return sum(number * number for number in range(60_000))


def micro_batch(x):
    with record_function("micro_batch"):
        model(x).square().mean().backward()


def step():
    ready = pool.submit(decode)
    optimizer.zero_grad()
    for x in batches:
        micro_batch(x)
    optimizer.step()
    ready.result()
    time.sleep(0.005)


for _ in range(3):
    step()
with hg.profile(sys.argv[1], skip=1, steps=2, report=False) as profiler:
    for _ in range(5):
        step()
        profiler.step()
