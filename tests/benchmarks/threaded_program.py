"""A Python program of threads that wait for each other, and that notes who ended each wait.

``python -m viztracer -o run.json threaded_program.py KIND SEED`` traces one. What it notes are
instants of the trace, so they are on its clock: ``waits`` before a call that may wait, ``woken by
release 12``, ``woken by end of THREAD`` or ``woken by nobody`` after it, ``release 12`` before the
call that releases, and ``started by THREAD`` where a thread begins. A lock says who released it
last, and an item who put it, so nothing is guessed.
"""

# ruff: noqa: D102, FBT002, S311 -- methods of Python's locks and queues, with their signatures

from __future__ import annotations

import itertools
import operator
import queue
import random
import sys
import threading
import time
from concurrent.futures.thread import ThreadPoolExecutor

from viztracer import get_tracer

_numbers = itertools.count(1)
_enter = operator.methodcaller("__enter__")
"""Enters a lock as ``with`` does: no call that a tracer sees."""


def note(text):
    """An instant of this thread."""
    tracer = get_tracer()
    if tracer is not None:
        tracer.add_instant(text, scope="t")


class Lock:
    """A lock that knows its last release."""

    of = staticmethod(threading.Lock)

    def __init__(self):
        self.inner, self.last = self.of(), 0

    def acquire(self, blocking=True, timeout=-1):
        note("waits")
        got = self.inner.acquire(blocking, timeout)
        note(f"woken by release {self.last}" if got else "woken by nobody")
        return got

    def release(self):
        self._noted()
        self.inner.release()

    def __enter__(self):
        note("waits")
        _enter(self.inner)
        note(f"woken by release {self.last}")
        return True

    def __exit__(self, *error):
        self._noted()
        self.inner.__exit__(*error)

    def locked(self):
        return self.inner.locked()

    def _noted(self):
        self.last = next(_numbers)
        note(f"release {self.last}")


class RLock(Lock):
    """The same, of a lock that its owner may take again: what conditions use."""

    of = staticmethod(threading.RLock)

    def _release_save(self):
        self._noted()
        return self.inner._release_save()

    def _acquire_restore(self, state):
        note("waits")
        self.inner._acquire_restore(state)
        note(f"woken by release {self.last}")

    def _is_owned(self):
        return self.inner._is_owned()


class SimpleQueue:
    """A queue whose items know who put them."""

    of = staticmethod(queue.SimpleQueue)

    def __init__(self):
        self.inner = self.of()

    def put(self, item):
        number = next(_numbers)
        note(f"release {number}")
        self.inner.put((number, item))

    def get(self, block=True, timeout=None):
        note("waits")
        number = 0
        try:
            number, item = self.inner.get(block, timeout)
        finally:
            note(f"woken by release {number}" if number else "woken by nobody")
        return item

    def get_nowait(self):
        return self.get(block=False)

    def empty(self):
        return self.inner.empty()


class Thread(threading.Thread):
    """A thread that notes who started it, and who waited for its end."""

    def start(self):
        self.starter = threading.get_native_id()
        super().start()

    def run(self):
        note(f"started by {self.starter}")
        super().run()

    def join(self, timeout=None):
        note("waits")
        super().join(timeout)
        note("woken by nobody" if self.is_alive() else f"woken by end of {self.native_id}")


def note_all():
    """Have all threads of this process note what they wait for."""
    threading.Lock = threading._allocate_lock = Lock
    threading.RLock = RLock
    threading.Condition.__enter__ = lambda self: self._lock.acquire()  # a call, as in CPython
    queue.SimpleQueue = SimpleQueue
    threading.Thread = Thread


def work(rng, most_ms=4.0):
    """Some time of this thread: asleep, or busy under the interpreter's lock."""
    duration = rng.uniform(0.1, most_ms) / 1000
    if rng.random() < 0.5:
        time.sleep(duration)
        return
    until = time.perf_counter() + duration
    while time.perf_counter() < until:
        sum(range(500))


def together(rng, *bodies):
    """Run functions on threads of their own until all have ended, waited for in some order."""
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    if rng.random() < 0.3:
        rng.shuffle(threads)
    for thread in threads:
        thread.join()


def seeded(rng, body, *arguments):
    """A body of a thread with random numbers of its own."""
    own = random.Random(rng.random())
    return lambda: body(own, *arguments)


def produce(rng, items, n):
    for item in range(n):
        work(rng)
        items.put(item)
    items.put(None)


def consume(rng, items):
    while items.get() is not None:
        work(rng, 2)


def pipeline(rng):
    """Stages that hand items on through short queues."""

    def stage(own, source, sink):
        while (item := source.get()) is not None:
            work(own)
            sink.put(item)
        sink.put(None)

    queues = [queue.Queue(rng.randint(1, 3)) for _ in range(rng.randint(2, 4))]
    stages = [seeded(rng, stage, source, sink) for source, sink in itertools.pairwise(queues)]
    together(rng, seeded(rng, produce, queues[0], 10), *stages, seeded(rng, consume, queues[-1]))


def pairs(rng):
    """Producers and consumers, two by two: the pairs have nothing to do with each other."""
    bodies = []
    for _ in range(rng.randint(2, 3)):
        items = queue.Queue(2) if rng.random() < 0.5 else queue.SimpleQueue()
        bodies += [seeded(rng, produce, items, 8), seeded(rng, consume, items)]
    together(rng, *bodies)


def locks(rng):
    """Threads that hold one of some locks for long, taken by call or by ``with``."""

    def body(own, shared):
        for _ in range(8):
            lock = own.choice(shared)
            if own.random() < 0.5:
                with lock:
                    work(own)
            else:
                lock.acquire()
                work(own)
                lock.release()
            work(own, 2)

    shared = [threading.Lock() for _ in range(rng.randint(1, 3))]
    together(rng, *(seeded(rng, body, shared) for _ in range(rng.randint(2, 6))))


def conditions(rng):
    """Threads that take turns at a condition."""
    n, turn, changed = rng.randint(2, 5), [0], threading.Condition()

    def body(own, mine):
        for _ in range(6):
            with changed:
                while turn[0] % n != mine:
                    changed.wait()
            work(own)
            with changed:
                turn[0] += 1
                changed.notify_all()

    together(rng, *(seeded(rng, body, mine) for mine in range(n)))


def events(rng):
    """Threads that wait for an event of the one before, and threads that meet at a barrier."""
    done = [threading.Event() for _ in range(rng.randint(3, 5))]
    barrier = threading.Barrier(2)

    def body(own, before, after):
        work(own)
        if before:
            before.wait()
        work(own)
        after.set()

    def meet(own):
        for _ in range(5):
            work(own)
            barrier.wait()

    chain = (
        seeded(rng, body, done[k - 1] if k else None, done[k]) for k in reversed(range(len(done)))
    )
    together(rng, *chain, seeded(rng, meet), seeded(rng, meet))


def pool(rng):
    """Tasks of a pool, whose results are waited for."""
    with ThreadPoolExecutor(rng.randint(1, 4)) as workers:
        for _ in range(4):
            tasks = [workers.submit(seeded(rng, work)) for _ in range(rng.randint(1, 5))]
            for task in tasks:
                task.result()
            work(rng)


def time_limits(rng):
    """Waits that time out, next to threads that use locks of their own."""
    never, held = threading.Event(), threading.Lock()
    held.acquire()

    def waits(own):
        for _ in range(8):
            limit = own.uniform(0.5, 8) / 1000
            if own.random() < 0.5:
                never.wait(limit)
            else:
                held.acquire(timeout=limit)

    def uses(own, lock):
        for _ in range(12):
            with lock:
                work(own, 2)
            work(own, 2)

    users = [seeded(rng, uses, threading.Lock()) for _ in range(rng.randint(1, 3))]
    together(rng, seeded(rng, waits), seeded(rng, waits), *users)


KINDS = {
    body.__name__: body for body in (pipeline, pairs, locks, conditions, events, pool, time_limits)
}

if __name__ == "__main__":
    note_all()
    KINDS[sys.argv[1]](random.Random(sys.argv[2]))
