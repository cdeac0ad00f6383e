"""python pairs.py FOLDER [REPEATS] [NAME ...]: short runs of a real PyTorch, with a cause and with it repaired.

Each pair is trained twice, one run after the other, REPEATS times (5): FOLDER gets NAME.before.0.pt.trace.json.gz,
NAME.after.0.pt.trace.json.gz, ...; of jobs, folders NAME.before.0/ with a trace of each rank. Every run is a process of
its own, forked after the import of torch; others.json says how many cores other programs used meanwhile. Pin it: taskset -c 2,3 python pairs.py FOLDER.
"""
import gc, hashlib, io, json, os, queue, random, shutil, sys, tempfile, threading, time, traceback
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

D, B = 384, 256
WAIT, WARM, ACTIVE = 2, 1, 6
N_STEPS = WAIT + WARM + ACTIVE + 1
WORLD = 2


class Net(nn.Module):
    """Layers around which pairs put what they plant."""
    def __init__(self, d=D, n=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d), nn.ReLU()) for _ in range(n))
        self.head = nn.Linear(d, 10)
        self.after_layer = lambda x: x
    def forward(self, x):
        for layer in self.layers:
            x = self.after_layer(layer(x))
        return self.head(x)


class Batches(Dataset):
    """Whole batches, each after some work."""
    def __init__(self, work=lambda i: None, d=D, b=B, make=None): self.work, self.d, self.b, self.make = work, d, b, make
    def __len__(self): return N_STEPS + 12
    def __getitem__(self, i):
        self.work(i)
        if self.make: return self.make(i)
        g = torch.Generator().manual_seed(i)
        return torch.randn(self.b, self.d, generator=g), torch.randint(0, 10, (self.b,), generator=g)


class Run:
    """A training run that a pair changes."""
    def __init__(self, rank=0):
        self.rank = rank
        self.model = Net()
        self.make_optimizer = lambda ps: torch.optim.SGD(ps, lr=1e-3)
        self.loader = DataLoader(Batches(), batch_size=None)
        self.batches = None  # instead of the loader
        self.loss = lambda model, x, y: F.cross_entropy(model(x), y)
        self.before_forward = self.after_forward = self.after_backward = self.after_step = lambda n: None
        self.wrap = lambda model: model  # of jobs
        self.stacks = False
        self.close = lambda: None

    def train(self, path):
        model = self.wrap(self.model)
        optimizer = self.make_optimizer(model.parameters())
        self.optimizer = optimizer
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=WAIT, warmup=WARM, active=ACTIVE),
                     on_trace_ready=lambda p: p.export_chrome_trace(path), with_stack=self.stacks) as prof:
            it = iter(self.batches or self.loader)
            for n in range(N_STEPS):
                x, y = next(it)
                self.before_forward(n)
                loss = self.loss(model, x, y)
                self.after_forward(n)
                loss.backward()
                self.after_backward(n)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                self.after_step(n)
                prof.step()
        self.close()


PAIRS, JOBS = {}, {}


def pair(of):
    PAIRS[of.__name__] = of
    return of


def job(of):
    JOBS[of.__name__] = of
    return of


# What takes time

def spin(ms):
    """Python that computes for a fixed amount of work, about ms."""
    total = 0
    for i in range(int(ms * 24_000)): total += i
    return total

def crunch(ms):
    """One PyTorch operator after the other, about ms, without the GIL."""
    a = torch.full((192, 192), 0.01)
    for _ in range(max(int(ms * 2.2), 1)): a = torch.tanh(a @ a)
    return a

def text(n):
    r = random.Random(0)
    return json.dumps([{"id": i, "v": [r.random() for _ in range(20)]} for i in range(n)])

def named(name, does, *args):
    with record_function(name): return does(*args)


# Loaders: a worker process loads ahead

def _prefetched(work=None, **more):
    def of(run, planted):
        run.loader = (DataLoader(Batches(work, **more), batch_size=None) if planted
                      else DataLoader(Batches(work, **more), batch_size=None, num_workers=1, prefetch_factor=2))
    return of

@pair
def prefetch_sleep_short(run, planted): _prefetched(lambda i: time.sleep(0.010))(run, planted)
@pair
def prefetch_sleep_long(run, planted): _prefetched(lambda i: time.sleep(0.060))(run, planted)
@pair
def prefetch_torch_short(run, planted): _prefetched(lambda i: crunch(10))(run, planted)
@pair
def prefetch_torch_long(run, planted): _prefetched(lambda i: crunch(60))(run, planted)
@pair
def prefetch_python(run, planted): _prefetched(lambda i: spin(12))(run, planted)
@pair
def prefetch_json(run, planted):
    t = text(1500); _prefetched(lambda i: json.loads(t))(run, planted)
@pair
def prefetch_big(run, planted):
    def make(i):
        x = torch.randn(1_500_000); return x[:B * D].view(B, D), torch.zeros(B, dtype=torch.long)
    _prefetched(lambda i: None, make=make)(run, planted)
@pair
def prefetch_items(run, planted):
    class Items(Dataset):
        def __len__(self): return B * (N_STEPS + 12)
        def __getitem__(self, i): return torch.randn(D), i % 10
    run.loader = DataLoader(Items(), batch_size=B, num_workers=0 if planted else 1)

# A loader that takes half the time

def _cheaper(work):
    def of(run, planted): run.loader = DataLoader(Batches(lambda i: [work() for _ in range(2 if planted else 1)]), batch_size=None)
    return of

@pair
def cheaper_sleep(run, planted): _cheaper(lambda: time.sleep(0.012))(run, planted)
@pair
def cheaper_torch(run, planted): _cheaper(lambda: crunch(12))(run, planted)
@pair
def cheaper_python(run, planted): _cheaper(lambda: spin(12))(run, planted)

# An own loader in a range of its own, and a thread that loads ahead

def _own(work):
    def of(run, planted):
        def load(i):
            work(i)
            g = torch.Generator().manual_seed(i)
            return torch.randn(B, D, generator=g), torch.randint(0, 10, (B,), generator=g)
        def inline():
            for i in range(N_STEPS + 12):
                with record_function("load_batch"): one = load(i)
                yield one
        def ahead():
            q = queue.Queue(2)
            threading.Thread(target=lambda: [q.put(load(i)) for i in range(N_STEPS + 12)], daemon=True).start()
            while True:
                with record_function("load_batch"): one = q.get()
                yield one
        run.batches = inline() if planted else ahead()
    return of

@pair
def thread_sleep(run, planted): _own(lambda i: time.sleep(0.012))(run, planted)
@pair
def thread_torch(run, planted): _own(lambda i: crunch(12))(run, planted)
@pair
def thread_python(run, planted): _own(lambda i: spin(8))(run, planted)

# Hooks

def _layer_hook(does):
    def of(run, planted):
        if planted:
            for layer in run.model.layers: layer.register_forward_hook(lambda m, i, o: named("hook", does, o) and None)
    return of

@pair
def hook_sleep(run, planted): _layer_hook(lambda o: time.sleep(0.003))(run, planted)
@pair
def hook_stats(run, planted): _layer_hook(lambda o: [o.detach().std().item(), o.detach().abs().max().item(), torch.histc(o.detach(), 100)])(run, planted)
@pair
def hook_copy(run, planted):
    kept = []; _layer_hook(lambda o: [kept.clear(), kept.append([o.detach().clone() for _ in range(8)])])(run, planted)
@pair
def hook_python(run, planted): _layer_hook(lambda o: spin(3))(run, planted)
@pair
def hook_gradients(run, planted):
    if planted:
        for p in run.model.parameters():
            p.register_hook(lambda g: named("hook", lambda: g.norm().item() + spin(0.8)) and None)
@pair
def hook_backward_sleep(run, planted):
    if planted:
        for layer in run.model.layers: layer[0].weight.register_hook(lambda g: named("hook", time.sleep, 0.004))

# Synchronizing with values: logging of metrics

@pair
def item_each(run, planted):
    def log(n):
        z = torch.arange(2000.)
        with record_function("log"): return sum(v.item() for v in z)
    if planted: run.after_step = log
@pair
def item_parameters(run, planted):
    if planted: run.after_backward = lambda n: named("log", lambda: [[p.grad.norm().item(), p.abs().mean().item(), p.std().item()] for _ in range(5) for p in run.model.parameters()])
@pair
def isnan_layers(run, planted):
    def check(x):
        with record_function("check"):
            for _ in range(6): assert not torch.isnan(x).any().item() and not torch.isinf(x).any().item()
        return x
    if planted: run.model.after_layer = check
@pair
def mask(run, planted):
    def select(n):
        z = torch.rand(1_000_000)
        return (z > 0.5).nonzero()
    if planted: run.after_step = lambda n: named("log", select, n)
@pair
def tolist(run, planted):
    if planted: run.after_backward = lambda n: named("log", lambda: [sum(p.grad.view(-1).tolist()) for p in run.model.parameters()])
@pair
def accuracy(run, planted):
    def loss(model, x, y):
        o = model(x)
        with record_function("log"):
            for k in [1, 2, 3, 5, 7, 9] * 5: (o.topk(k).indices == y[:, None]).any(1).float().mean().item(); o.argsort(dim=1)
        return F.cross_entropy(o, y)
    if planted: run.loss = loss

# Optimizers: the same with another implementation

def _many(run):
    run.model.extra = nn.ParameterList(nn.Parameter(torch.randn(64)) for _ in range(200))
    run.loss = lambda model, x, y: F.cross_entropy(model(x), y) + torch.stack(list(model.extra)).sum() * 0

@pair
def adam_foreach(run, planted): _many(run); run.make_optimizer = lambda ps: torch.optim.Adam(ps, foreach=not planted)
@pair
def adam_fused(run, planted): _many(run); run.make_optimizer = lambda ps: torch.optim.Adam(ps, foreach=not planted, fused=None if planted else False)
@pair
def adam_sgd(run, planted): run.model = Net(512); run.loader = DataLoader(Batches(d=512), batch_size=None); run.make_optimizer = (lambda ps: torch.optim.Adam(ps, foreach=True)) if planted else (lambda ps: torch.optim.SGD(ps, lr=1e-3, foreach=True))
@pair
def clip(run, planted):
    _many(run)
    if planted: run.after_backward = lambda n: named("clip", lambda: [nn.utils.clip_grad_norm_([p], 1.0) for p in run.model.parameters()])
@pair
def ema(run, planted):
    shadow = [p.detach().clone() for p in run.model.parameters()]
    if planted: run.after_step = lambda n: named("ema", lambda: [s.mul_(0.99).add_(p.detach(), alpha=0.01) for _ in range(6) for s, p in zip(shadow, run.model.parameters())])

# Many small operators

def _small(n):
    def does():
        t = torch.zeros(4)
        for _ in range(n): t = t + 1
    return does

@pair
def small_removed(run, planted):
    if planted: run.after_step = lambda n: named("small", _small(4000))
@pair
def small_halved(run, planted): run.after_step = lambda n: named("small", _small(4000 if planted else 2000))
@pair
def norm_by_hand(run, planted):
    def by_hand(x):
        with record_function("norm"):
            for _ in range(40):
                m = x.mean(-1, keepdim=True); v = ((x - m) ** 2).mean(-1, keepdim=True); x = (x - m) / torch.sqrt(v + 1e-5)
        return x
    def fused(x):
        with record_function("norm"):
            for _ in range(40): x = F.layer_norm(x, (D,))
        return x
    run.loss = lambda model, x, y: F.cross_entropy(model(by_hand(x) if planted else fused(x)), y)
@pair
def samples_loop(run, planted):
    def each(x):
        with record_function("each"): return torch.stack([torch.tanh(row / row.norm()) * row.mean() for row in x])
    run.loss = lambda model, x, y: F.cross_entropy(model(each(x) if planted else x), y)

# Code of the loop

@pair
def sleep_after(run, planted):
    if planted: run.after_step = lambda n: time.sleep(0.015)
@pair
def sleep_middle(run, planted):
    if planted: run.after_forward = lambda n: named("wait", time.sleep, 0.010)
@pair
def json_forward(run, planted):
    t = text(1500)
    if planted: run.before_forward = lambda n: named("parse", json.loads, t)
@pair
def python_loop(run, planted):
    if planted: run.after_step = lambda n: spin(12)
@pair
def hash_each(run, planted):
    blob = bytes(20_000_000)
    if planted: run.after_step = lambda n: named("hash", lambda: hashlib.sha256(blob).digest())
@pair
def gc_each(run, planted):
    keep = [[i] for i in range(80_000)]
    if planted: run.after_step = lambda n: named("collect", gc.collect)
@pair
def lists(run, planted):
    if planted: run.after_step = lambda n: named("lists", lambda: len([[i] for i in range(60_000)]))

# Files

@pair
def save_each(run, planted):
    if planted: run.after_step = lambda n: named("save", lambda: torch.save({"m": run.model.state_dict(), "pad": torch.zeros(1_000_000)}, "checkpoint.pt"))
@pair
def save_bytes(run, planted):
    if planted: run.after_step = lambda n: named("save", lambda: torch.save(run.optimizer.state_dict() | {"m": run.model.state_dict()}, io.BytesIO()) or [torch.save(run.model.state_dict(), io.BytesIO()) for _ in range(8)])
@pair
def read_each(run, planted):
    if not os.path.exists("blob"): open("blob", "wb").write(os.urandom(60_000_000))
    if planted: run.before_forward = lambda n: named("read file", lambda: len(open("blob", "rb").read()))
@pair
def log_lines(run, planted):
    def write():
        with open("log", "w") as f:
            for i in range(3000): f.write(json.dumps({"step": i, "loss": 0.1 * i}) + "\n"); i % 20 or f.flush()
    if planted: run.after_step = lambda n: named("write", write)

# Work of the model

@pair
def layers_removed(run, planted):
    extra = nn.Sequential(*(nn.Linear(D, D) for _ in range(12)))
    def loss(model, x, y):
        with torch.no_grad(), record_function("teacher"): extra(x)
        return F.cross_entropy(model(x), y)
    if planted: run.loss = loss
@pair
def matmul_halved(run, planted):
    k = 1200 if planted else 600
    a, b = torch.randn(500, k), torch.randn(k, 500)
    run.before_forward = lambda n: named("mix", lambda: [a @ b for _ in range(3)])
@pair
def augment(run, planted):
    def loss(model, x, y):
        if planted:
            with record_function("augment"):
                x = x + 0.01 * torch.randn_like(x); x = torch.where(torch.rand_like(x) > 0.1, x, torch.zeros_like(x)); x = x.sort(dim=1).values
        return F.cross_entropy(model(x), y)
    run.loss = loss
@pair
def slow_backward(run, planted):
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.clone()
        @staticmethod
        def backward(ctx, g): crunch(10); return g.clone()
    if planted: run.model.after_layer = lambda x: Slow.apply(x)


# Jobs of two ranks

def _ddp(run, **more): run.wrap = lambda model: nn.parallel.DistributedDataParallel(model, **more)

@job
def ddp_sleep(run, planted):
    _ddp(run)
    if planted and run.rank == 1: run.before_forward = lambda n: time.sleep(0.020)
@job
def ddp_sleep_forward(run, planted):
    _ddp(run)
    if planted and run.rank == 1:
        for layer in run.model.layers: layer.register_forward_hook(lambda m, i, o: named("hook", time.sleep, 0.005))
@job
def ddp_python(run, planted):
    _ddp(run)
    if planted and run.rank == 1: run.before_forward = lambda n: named("parse", spin, 20)
@job
def ddp_loader(run, planted):
    _ddp(run)
    run.loader = DataLoader(Batches((lambda i: time.sleep(0.020)) if planted and run.rank == 1 else lambda i: None), batch_size=None)
@job
def ddp_work(run, planted):
    _ddp(run)
    if planted and run.rank == 1: run.model.after_layer = lambda x: named("more", lambda: (crunch(6), x)[1])
@job
def ddp_alternate(run, planted):
    _ddp(run)
    if planted: run.before_forward = lambda n: n % 2 == run.rank and time.sleep(0.020)
@job
def ddp_log_both(run, planted):
    _ddp(run)
    if planted: run.after_step = lambda n: named("log", lambda: [[p.abs().mean().item(), p.std().item()] for _ in range(4) for p in run.model.parameters()])
@job
def reduce_sleep(run, planted):
    def reduce(n):
        for p in run.model.parameters(): dist.all_reduce(p.grad)
    run.after_backward = reduce
    if planted and run.rank == 1: run.before_forward = lambda n: time.sleep(0.020)
@job
def reduce_async_sleep(run, planted):
    def reduce(n):
        for w in [dist.all_reduce(p.grad, async_op=True) for p in run.model.parameters()]: w.wait()
    run.after_backward = reduce
    if planted and run.rank == 1: run.before_forward = lambda n: time.sleep(0.020)
@job
def reduce_metrics(run, planted):
    def reduce(n):
        for p in run.model.parameters(): dist.all_reduce(p.grad)
        if planted:
            with record_function("log"):
                for _ in range(30): dist.all_reduce(torch.ones(8))
    run.after_backward = reduce
@job
def barriers(run, planted):
    _ddp(run)
    if planted: run.after_step = lambda n: named("barriers", lambda: [dist.barrier() for _ in range(10)])
@job
def gather_objects(run, planted):
    _ddp(run)
    if planted: run.after_step = lambda n: named("gather", lambda: [dist.all_gather_object([None] * WORLD, {"r": run.rank, "v": list(range(2000))}) for _ in range(5)])


def forked(does):
    """Run in a process of its own; whether it worked."""
    pid = os.fork()
    if pid: return pid
    try:
        torch.set_num_threads(1); torch.manual_seed(0); does(); code = 0
    except BaseException:
        traceback.print_exc(); code = 1
    sys.stdout.flush(); sys.stderr.flush(); os._exit(code)

def wait_for(pids): return all(os.waitpid(pid, 0)[1] == 0 for pid in pids)

def times():
    """Seconds that all cores were busy, that processes of this script were, and that passed."""
    busy = open("/proc/stat").readline().split()[1:4]
    return sum(map(int, busy)) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4]), time.perf_counter()

def one(of, planted, path):
    run = Run(); of(run, planted); run.train(path)

def rank_of(of, planted, folder, rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    run = Run(rank); of(run, planted); run.train(os.path.join(folder, f"rank{rank}.pt.trace.json.gz"))
    dist.barrier(); dist.destroy_process_group()

def main():
    folder, repeats = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    names = sys.argv[3:] or [*PAIRS, *JOBS]
    os.makedirs(folder, exist_ok=True)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.chdir(tempfile.mkdtemp())
    others = {}
    for n in range(repeats):
        for name in names:
            for side in ("before", "after"):
                path = os.path.join(folder, f"{name}.{side}.{n}")
                before = times()
                if name in PAIRS:
                    good = wait_for([forked(lambda: one(PAIRS[name], side == "before", path + ".pt.trace.json.gz"))])
                else:
                    shutil.rmtree(path, ignore_errors=True); os.makedirs(path); store = tempfile.mktemp()
                    good = wait_for([forked(lambda r=r: rank_of(JOBS[name], side == "before", path, r, store)) for r in range(WORLD)])
                all_s, own_s, took_s = (b - a for a, b in zip(before, times()))
                others[f"{name}.{side}.{n}"] = round((all_s - own_s) / took_s, 2)
                if not good: print("failed:", name, side, n, flush=True)
            json.dump(others, open(os.path.join(folder, "others.json"), "w"))

if __name__ == "__main__":
    main()
