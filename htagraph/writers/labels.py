"""Names that fit into a box: of kernels, without their templates and arguments."""

from __future__ import annotations

import re

__all__ = ["name_label"]

_RETURN_TYPE = re.compile(r"^(?:void |std::enable_if<.*?>::type )")
_FUNCTION = re.compile(r"[\w>]\(.*\)(?: const)?$")
_HEAD = re.compile(r"([^<(]*)(?:<([\w:]+))?")
_SAYS_LITTLE = {"kernel", "kernel2", "device_kernel"}


def name_label(name: str, *, width: int = 48) -> str:
    """Return a short name: of a C++ function without return type, namespaces, template and arguments.

    Parameters
    ----------
    name : str
    width : int
        What is longer loses its middle.

    Examples
    --------
    >>> name_label("void at::native::vectorized_elementwise_kernel<4, at::AddFunctor<float> >(int, float)")
    'vectorized_elementwise_kernel'
    >>> name_label("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128>(Params)")
    'Kernel<cutlass_80_tensorop_s1688gemm_128x128>'
    >>> name_label("aten::mm"), name_label("Memcpy HtoD (Pageable -> Device)")
    ('aten::mm', 'Memcpy HtoD (Pageable -> Device)')
    """
    short = name
    if _RETURN_TYPE.match(name) or _FUNCTION.search(name):
        bare = _RETURN_TYPE.sub("", name).replace("(anonymous namespace)::", "")
        head, template = _HEAD.findall(bare)[0]
        short = head.rsplit("::", 1)[-1].strip() or name
        if template and short.lower() in _SAYS_LITTLE:
            short = f"{short}<{template.rsplit('::', 1)[-1]}>"
    if len(short) > width:
        head_width = width * 2 // 3
        short = f"{short[:head_width]}…{short[head_width + 1 - width :]}"
    return short
