"""Fused attention, forward and backward. What a causal mask leaves out is not counted.

Keys and values of serving engines are in pages, and shapes give heads only: vLLM and SGLang name
the sums of a step's lengths in its range (`Lengths`). A sliding window sees less, and sequences may
share pages; neither is recorded. So the least is each query with its own key, and the most is each
query with all keys before it.
"""

from __future__ import annotations

from typing import NamedTuple

from htagraph.operators.call import Call, Tensor, bytes_of
from htagraph.operators.work import Family, Work, models, traffic


class _Arguments(NamedTuple):
    """Where an operator has its arguments; -1 for none."""

    query: int
    causal: int
    lengths: int = -1  #: lengths of sequences in device memory: nothing is known
    heads: int = 1  #: dimension of the heads; sequences are in the other one of 1 and 2
    mask: int = -1  #: kind of mask: 1 top-left, 2 bottom-right
    is_bottom_right: bool = False
    bias: int = -1


_FORWARD = {
    "aten::_scaled_dot_product_flash_attention": _Arguments(0, 4),
    "aten::_scaled_dot_product_efficient_attention": _Arguments(0, 6, bias=3),
    "aten::_scaled_dot_product_cudnn_attention": _Arguments(0, 6, bias=3),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Arguments(0, 4),
    "aten::_scaled_dot_product_fused_attention_overrideable": _Arguments(0, 5, bias=3),
    "aten::_flash_attention_forward": _Arguments(0, 8, lengths=3, heads=2),
    "aten::_efficient_attention_forward": _Arguments(0, -1, lengths=4, heads=2, mask=9, bias=3),
    "flash_attn::_flash_attn_forward": _Arguments(0, 5, heads=2, is_bottom_right=True),
    "aiter::fmha_v3_fwd": _Arguments(0, 5, heads=2, is_bottom_right=True),
}
_BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": _Arguments(1, 11),
    "aten::_scaled_dot_product_efficient_attention_backward": _Arguments(1, 11, bias=4),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Arguments(1, 14, bias=8),
    "aten::_flash_attention_backward": _Arguments(1, 11, lengths=6, heads=2),
    "aten::_efficient_attention_backward": _Arguments(1, -1, lengths=6, heads=2, mask=13, bias=4),
    "flash_attn::_flash_attn_backward": _Arguments(1, 11, heads=2, is_bottom_right=True),
    "aiter::fmha_v3_bwd": _Arguments(1, 8, heads=2, is_bottom_right=True),
}
_PRODUCTS_BACKWARD = 5
"""Matrix products of the backward pass, which computes the scores again; two forward."""


def cells(n_queries: int, n_keys: int, *, is_bottom_right: bool = False) -> int:
    """Scores that a causal mask leaves, of one head."""
    shift = n_keys - n_queries if is_bottom_right else 0
    # Query i sees keys 0 to i + shift: whole rows from where it sees all.
    first = max(-shift, 0)
    full_from = min(max(n_keys - shift - 1, first), n_queries)
    n_rising = max(full_from - first, 0)
    rising = n_rising * (2 * (first + shift + 1) + n_rising - 1) // 2
    return rising + (n_queries - full_from) * n_keys if n_queries else 0


@models(*_FORWARD, *_BACKWARD)
def dense(call: Call) -> Work | None:
    """Scores, and their product with the values; backward, scores again, and all gradients."""
    is_backward = call.name in _BACKWARD
    at = _BACKWARD[call.name] if is_backward else _FORWARD[call.name]
    query, key, value = (call.tensor(at.query + k) for k in range(3))
    if query is None or key is None or value is None:
        return None
    if len(query.dims) != 4 or len(key.dims) != 4 or len(value.dims) != 4:
        return None  # packed sequences: their lengths are not in the shapes
    if at.lengths >= 0 and call.tensor(at.lengths) is not None:
        return None
    sequence = 3 - at.heads
    n_queries, n_keys = query.dims[sequence], key.dims[sequence]
    kind = (call.integers(at.mask) or [0])[0] if at.mask >= 0 else 0
    causal = call.flag(at.causal) if at.causal >= 0 else kind > 0
    per_head = n_queries * n_keys
    if causal:
        is_bottom_right = at.is_bottom_right or kind == 2
        per_head = cells(n_queries, n_keys, is_bottom_right=is_bottom_right)
    scores = query.dims[0] * query.dims[at.heads] * per_head
    bias = call.tensor(at.bias) if at.bias >= 0 else None
    out = Tensor((*query.dims[:-1], value.dims[-1]), query.dtype)
    reads, writes = [query, key, value, *([bias] if bias else [])], [out]
    flops = (_PRODUCTS_BACKWARD if is_backward else 2) * scores * (query.dims[-1] + out.dims[-1])
    if is_backward:
        reads, writes = [*reads, out, out], [query, key, value]
    return traffic(Family.ATTENTION, reads, writes, flops=flops, dtype=out.dtype)


_QUERY_AND_KEY = {
    "vllm::unified_attention": (0, 1),
    "vllm::unified_attention_with_output": (0, 1),
    "aiter::mha_batch_prefill": (0, 1),
    "aiter::paged_attention_ragged": (2, 3),
    "sglang_profiler::attention_paged_attention_ragged": (2, 3),
}
"""Positions of the query and of a key: ``[tokens, heads, width]``, or a page of the cache."""

PAGED = frozenset(_QUERY_AND_KEY)
"""Operators whose lengths are those of the step."""


@models(*_QUERY_AND_KEY)
def paged(call: Call) -> Work | None:
    """``4 * heads * width`` operations a score; each key and value read once."""
    at_query, at_key = _QUERY_AND_KEY[call.name]
    query, key, lengths = call.tensor(at_query), call.tensor(at_key), call.lengths
    if query is None or key is None or lengths is None:
        return None
    if len(query.dims) != 3 or len(key.dims) < 3 or query.dims[0] < lengths.queries:
        return None
    (_, heads, width), key_heads = query.dims, key.dims[-2]
    tokens = Tensor((lengths.queries, heads, width), query.dtype)
    flops = 4 * heads * width
    ends, of_query = [tokens], flops * lengths.queries
    least = traffic(Family.ATTENTION, ends, ends, flops=of_query, dtype=query.dtype)
    cached = 2 * lengths.keys * key_heads * width * bytes_of(key.dtype)[1]
    most = least.bytes_high + cached
    return least._replace(bytes_high=most, flops_high=flops * lengths.scores)
