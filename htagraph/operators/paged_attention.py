"""Attention of serving engines, whose keys and values are in pages: at most, by summed lengths.

Shapes give heads only. vLLM and SGLang name the sums of a step's lengths in its range (`Lengths`).
A sliding window sees less, and sequences may share pages; neither is recorded. So the least is each
query with its own key, and the most is each query with all keys before it.
"""

from __future__ import annotations

from htagraph.operators.call import Call, Tensor, bytes_of
from htagraph.operators.work import Family, Work, models, traffic

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
    least = traffic(
        Family.ATTENTION,
        [tokens],
        [tokens],
        flops=4 * heads * width * lengths.queries,
        dtype=query.dtype,
    )
    cached = 2 * lengths.keys * key_heads * width * bytes_of(key.dtype)[1]
    return least._replace(
        bytes_high=least.bytes_high + cached, flops_high=4 * heads * width * lengths.scores
    )
