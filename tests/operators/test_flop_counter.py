"""Operations of operators that a real PyTorch ran and recorded, against its own counter."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import htagraph as hg
from htagraph.lookup.operator_roofs import call_of
from htagraph.operators.work import work_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]


def counted(operator: Callable[[], Any]) -> int:
    """Operations that PyTorch's counter finds."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        operator()
    return counter.get_total_flops()


def modelled(operator: Callable[[], Any], folder: Any) -> int:
    """Operations of the outermost recorded operators with a model that multiply."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorder:
        operator()
    recorder.export_chrome_trace(str(folder / "trace.json"))
    dag = hg.load(folder / "trace.json").compile().dag
    total, known = 0, set()
    for event in np.argsort(dag.events.ts_ns, kind="stable").tolist():
        call = call_of(dag, event)
        work = work_of(call) if call else None
        above, inside = int(dag.parent[event]), False
        while above >= 0:
            inside |= above in known
            above = int(dag.parent[above])
        if work and work.flops and not inside:
            known.add(event)
            total += work.flops
    return total


def _tensor(*dims: int, dtype: str = "bfloat16") -> Any:
    import torch

    return torch.empty(dims, dtype=getattr(torch, dtype), device="meta")


def _convolved(groups: int = 1, *, transposed: bool = False, stride: int = 1) -> Any:
    import torch

    x = _tensor(8, 64, 28, 28)
    weight = _tensor(64, 32 // groups, 3, 3) if transposed else _tensor(128, 64 // groups, 3, 3)
    return torch.ops.aten.convolution(
        x, weight, None, [stride] * 2, [1, 1], [1, 1], transposed, [0, 0], groups
    )


def _convolved_back(groups: int, mask: tuple[bool, bool, bool]) -> Any:
    import torch

    gradient, x, weight = (
        _tensor(8, 128, 28, 28),
        _tensor(8, 64, 28, 28),
        _tensor(128, 64 // groups, 3, 3),
    )
    return torch.ops.aten.convolution_backward(
        *(gradient, x, weight, [128], [1, 1], [1, 1], [1, 1], False, [0, 0], groups, mask)
    )


def _attended(kind: str, n_keys: int = 512, *, is_causal: bool = False) -> Any:
    import torch

    query, keys, values = (_tensor(2, 8, n, 64) for n in (512, n_keys, n_keys))
    if kind == "flash":
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, keys, values, 0.0, is_causal
        )
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, keys, values, None, True, 0.0, is_causal
    )


def _attended_back() -> Any:
    import torch

    query, keys, values = (_tensor(2, 8, 512, 64) for _ in range(3))
    sums, seed, offset = _tensor(2, 8, 512, dtype="float32"), _tensor(2), _tensor(2)
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        *(query, query, keys, values, query, sums, None, None, 512, 512, 0.0, False, seed, offset)
    )


def _of_torch(name: str, *dims: tuple[int, ...]) -> Any:
    import torch

    return getattr(torch, name)(*(_tensor(*one) for one in dims))


_LIKE = {
    "mm": lambda: _of_torch("mm", (64, 256), (256, 512)),
    "addmm": lambda: _of_torch("addmm", (512,), (64, 256), (256, 512)),
    "bmm": lambda: _of_torch("bmm", (16, 64, 256), (16, 256, 512)),
    "baddbmm": lambda: _of_torch("baddbmm", (16, 64, 512), (16, 64, 256), (16, 256, 512)),
    "a product of three dimensions": lambda: _of_torch("matmul", (4, 8, 256), (256, 512)),
    "convolution": _convolved,
    "convolution, stride 2": lambda: _convolved(stride=2),
    "convolution in 4 groups": lambda: _convolved(4),
    "transposed convolution": lambda: _convolved(transposed=True),
    "gradients of a convolution": lambda: _convolved_back(1, (True, True, True)),
    "gradient of its weight": lambda: _convolved_back(1, (False, True, False)),
    "attention": lambda: _attended("flash"),
    "attention to more keys": lambda: _attended("flash", 2048),
    "efficient attention": lambda: _attended("efficient"),
    "gradients of attention": _attended_back,
}


@pytest.mark.parametrize("operator", _LIKE.values(), ids=_LIKE.keys())
def test_operations_are_those_of_the_counter(operator, tmp_path):
    """A multiply-add as 2, and no bias."""
    assert modelled(operator, tmp_path) == counted(operator) > 0


def test_the_counter_takes_the_gradient_of_a_grouped_weight_as_dense(tmp_path):
    """In 4 groups, a quarter of the products are needed; it counts all of those of the weight."""

    def gradients():
        return _convolved_back(4, (True, True, False))

    of_each = 2 * 8 * 28 * 28 * 128 * (64 // 4) * 3 * 3

    assert modelled(gradients, tmp_path) == 2 * of_each
    assert counted(gradients) == of_each + 4 * of_each


def test_the_counter_counts_what_a_causal_mask_leaves_out(tmp_path):
    """512 * 513 / 2 of 512 * 512 scores are needed, of 16 heads, in two products."""

    def causal():
        return _attended("flash", is_causal=True)

    assert modelled(causal, tmp_path) == 16 * (512 * 513 // 2) * 2 * 64 * 2
    assert counted(causal) == 16 * 512 * 512 * 2 * 64 * 2
