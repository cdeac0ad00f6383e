"""The device that the programs of this room run on: a GPU, or CPU tensors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from htagraph.model.devices import DeviceProperties
from htagraph.operators.peaks import DevicePeaks, peaks_of

_FP8_CAPABILITY = (8, 9)
"""Compute capability from which tensor cores multiply fp8."""


class Machine(NamedTuple):
    """A device, ``cuda`` or ``cpu``."""

    device: str

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.device == "cuda"

    @property
    def name(self) -> str:
        """Its name, as the profiler records it."""
        return torch.cuda.get_device_name() if self.is_gpu else "CPU"

    @property
    def has_fp8(self) -> bool:
        """Whether it multiplies fp8."""
        return self.is_gpu and torch.cuda.get_device_capability() >= _FP8_CAPABILITY

    @property
    def dtype(self) -> torch.dtype:
        """The type of tensors that suits it."""
        return torch.bfloat16 if self.is_gpu else torch.float32

    @property
    def peaks(self) -> DevicePeaks | None:
        """What htagraph knows of its limits."""
        if not self.is_gpu:
            return None
        found = torch.cuda.get_device_properties(0)
        return peaks_of(
            DeviceProperties(
                0,
                name=found.name,
                n_sms=found.multi_processor_count,
                memory_bytes=found.total_memory,
            )
        )

    def size(self, on_gpu: int, on_cpu: int) -> int:
        """A size for each kind of device."""
        return on_gpu if self.is_gpu else on_cpu

    def wait(self) -> None:
        """Wait until all work is done."""
        if self.is_gpu:
            torch.cuda.synchronize()

    def ms(self, work: Callable[[], object], n: int) -> float:
        """The shortest of `n` runs, by the device's own clock."""
        for _ in range(3):
            work()
        self.wait()
        if not self.is_gpu:
            return min(self._host_ms(work) for _ in range(n))
        marks = [
            [torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)]
            for _ in range(n)
        ]
        for begin, end in marks:
            begin.record()
            work()
            end.record()
        self.wait()
        return min(begin.elapsed_time(end) for begin, end in marks)

    def step_ms(self, step: Callable[[], object], n: int) -> list[float]:
        """Each of `n` runs by the host's clock, until the device is done."""
        return [self._host_ms(step) for _ in range(n)]

    def _host_ms(self, work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        work()
        self.wait()
        return (time.perf_counter() - begin) * 1e3
