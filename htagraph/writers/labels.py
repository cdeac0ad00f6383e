"""Names that fit into a box: of kernels, without their templates and arguments."""

from __future__ import annotations

import re

__all__ = ["name_label"]

_TEMPLATE = re.compile(r"<[^<>]*>")
_ARGUMENTS = re.compile(r"(?<=[\w>])\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?$")


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
    >>> name_label("aten::mm"), name_label("Memcpy HtoD (Pageable -> Device)")
    ('aten::mm', 'Memcpy HtoD (Pageable -> Device)')
    """
    short = name.replace("(anonymous namespace)", "")
    is_function = _ARGUMENTS.search(short) is not None or short.startswith("void ")
    if is_function:
        while (cut := _TEMPLATE.sub("", short)) != short:
            short = cut
        short = _ARGUMENTS.sub("", short).strip().rsplit(" ", 1)[-1].rsplit("::", 1)[-1] or name
    if len(short) > width:
        head = width * 2 // 3
        short = f"{short[:head]}…{short[head + 1 - width :]}"
    return short
