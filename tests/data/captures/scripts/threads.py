"""python threads.py CASE OUTDIR: work that is passed between threads, and the truth about it.

All threads are recorded (profile_all_threads). Nothing says in the trace who passes what to whom.
"""
import asyncio, json, os, queue, random, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
from torch.profiler import profile, ProfilerActivity, record_function
from torch._C._profiler import _ExperimentalConfig
from common import Net, run_delay_ms

case, out = sys.argv[1], sys.argv[2]
os.makedirs(out, exist_ok=True)
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
N = 20
PLANTED = {
    "server": "requests through queues: a thread tokenizes (sorts) for 20 ms, another one infers",
    "server_python": "the same, but tokenizing is 20 ms of Python, then one operator",
    "pool": "ThreadPoolExecutor.map over 3 items, one for each worker: one worker takes 25 ms",
    "to_thread": "asyncio.to_thread: 15 ms of sorting in another thread",
    "forward": "forward in one thread, backward in another one; the forward thread sorts for 12 ms",
    "fork": "torch.jit.fork: 15 ms of sorting in a thread of the inter-op pool",
    "unrelated_random": "nothing: two threads that work and sleep at random",
    "unrelated_steady": "nothing: two threads that work every 10 ms, the second 1 ms after the first",
    "unrelated_loop": "nothing: two threads that work, then sleep for 8 ms",
    "prefetch": "a thread loads ahead (3 ms a batch); the main thread takes 9 ms a batch: it waits once",
}
busy = {}


def sort_for(seconds, what, size=100_000):
    """Sort until so much time has passed, and count it as planted."""
    begun = time.perf_counter()
    x = torch.rand(size)
    while time.perf_counter() - begun < seconds:
        x = torch.sort(x.neg())[0]
    count(what, begun)


def count(what, begun):
    total, n, tids = busy.get(what, (0.0, 0, set()))
    ms = (time.perf_counter() - begun) * 1e3
    busy[what] = (total + ms, n + 1, tids | {threading.get_native_id()})


def python_for(seconds, what):
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        sum(i * i for i in range(500))
    count(what, begun)


def start(function, name):
    thread = threading.Thread(target=function, daemon=True, name=name)
    thread.start()
    return thread


def consumer(given, give, work):
    def run():
        while (item := given.get()) is not None:
            give.put(work(item))
    return run


net = Net(256, 3)
batch = torch.randn(64, 256)


def infer(item):
    begun = time.perf_counter()
    with torch.no_grad():
        for _ in range(3):
            net(batch)
    count("inference", begun)
    return item


def server(tokenize):
    texts, tokens, answers = queue.Queue(), queue.Queue(), queue.Queue()
    start(consumer(texts, tokens, tokenize), "tokenizer")
    start(consumer(tokens, answers, infer), "inference")
    def run(n):
        for i in range(n):
            with record_function("request"):
                texts.put(i)
                answers.get()
    return run


def tokenize(item):
    sort_for(0.020, "tokenizer")
    return item


def tokenize_python(item):
    python_for(0.020, "tokenizer")
    torch.rand(8)
    return item


def pool():
    workers, together = ThreadPoolExecutor(3, "item"), threading.Barrier(3)
    def item(_):
        together.wait()
        slow = threading.current_thread().name.endswith("_0")
        sort_for(0.025 if slow else 0.006, "slow" if slow else "fast")
    def run(n):
        for _ in range(n):
            batch.sum()
            list(workers.map(item, range(3)))
            batch.mean()
    return run


def to_thread():
    def work():
        sort_for(0.015, "worker")
    async def loop(n):
        for _ in range(n):
            batch.sum()
            await asyncio.to_thread(work)
            batch.mean()
    def run(n):
        asyncio.run(loop(n))
    return run


def forward():
    first, second = ThreadPoolExecutor(1, "forward"), ThreadPoolExecutor(1, "backward")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    def forward_pass():
        sort_for(0.012, "forward")
        return net(batch).sum()
    def run(n):
        for _ in range(n):
            loss = first.submit(forward_pass).result()
            second.submit(loss.backward).result()
            optimizer.step()
            optimizer.zero_grad()
    return run


@torch.jit.script
def sorts(x: torch.Tensor, n: int):
    for _ in range(n):
        x = torch.sort(x.neg())[0]
    return x


@torch.jit.script
def forks(x: torch.Tensor, n: int):
    future = torch.jit.fork(sorts, x, n)
    return torch.jit.wait(future)


def fork():
    x = torch.rand(100_000)
    sorts(x, 20)
    begun = time.perf_counter()
    sorts(x, 20)
    n_sorts = int(0.015 / ((time.perf_counter() - begun) / 20))
    def run(n):
        for _ in range(n):
            begun = time.perf_counter()
            forks(x, n_sorts)
            count("wait", begun)
    return run


def steadily(work, begins, n):
    for i in range(n):
        time.sleep(max(begins + i * 0.010 - time.perf_counter(), 0))
        work()


def unrelated_steady():
    def run(n):
        begins = time.perf_counter() + 0.01
        other = start(
            lambda: steadily(lambda: sort_for(0.002, "other", 20_000), begins + 0.001, n), "other"
        )
        steadily(lambda: infer(0), begins, n)
        other.join()
    return run


def unrelated(pause):
    stop = threading.Event()
    def other():
        while not stop.is_set():
            sort_for(random.uniform(0.001, 0.006) if pause is None else 0.002, "other", 20_000)
            time.sleep(random.uniform(0.001, 0.012) if pause is None else pause)
    start(other, "other")
    def run(n):
        for _ in range(n):
            infer(0)
            time.sleep(random.uniform(0.001, 0.012) if pause is None else pause)
        stop.set()
    return run


def prefetch():
    batches = queue.Queue(4)
    def load():
        while True:
            sort_for(0.003, "loader")
            batches.put(torch.randn(64, 256))
    start(load, "loader")
    def run(n):
        for _ in range(n):
            batches.get()
            sort_for(0.009, "main")
    return run


RUNS = {
    "server": lambda: server(tokenize),
    "server_python": lambda: server(tokenize_python),
    "pool": pool,
    "to_thread": to_thread,
    "forward": forward,
    "fork": fork,
    "unrelated_random": lambda: unrelated(None),
    "unrelated_steady": unrelated_steady,
    "unrelated_loop": lambda: unrelated(0.008),
    "prefetch": prefetch,
}
run = RUNS[case]()
if case not in ("unrelated_random", "unrelated_steady", "unrelated_loop", "prefetch"):
    run(2)
config = _ExperimentalConfig(profile_all_threads=True)
with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as prof:
    busy.clear()
    delay = run_delay_ms()
    began = time.perf_counter()
    run(N)
    total, delay, planted = (time.perf_counter() - began) * 1e3, run_delay_ms() - delay, dict(busy)
prof.export_chrome_trace(os.path.join(out, f"{case}.pt.trace.json.gz"))
truth = {
    "case": case,
    "planted": PLANTED[case],
    "torch": torch.__version__,
    "n": N,
    "total_ms": round(total, 3),
    "noise_not_scheduled_ms": round(delay, 3),
    "main_tid": threading.get_native_id(),
    "threads": {
        name: {"tids": sorted(tids), "n": n, "ms": round(ms, 3)}
        for name, (ms, n, tids) in planted.items()
    },
}
with open(os.path.join(out, f"{case}.truth.json"), "w") as file:
    json.dump(truth, file, indent=1)
print(json.dumps(truth))
