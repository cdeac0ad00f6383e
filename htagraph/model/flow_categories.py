"""Categories of flow points whose edges have a rule of their own."""

__all__ = ["FORWARD_BACKWARD", "TENSOR_DEPENDENCY"]

FORWARD_BACKWARD = "fwdbwd"
"""From a forward operator to its backward operator; PyTorch's profiler writes them."""

TENSOR_DEPENDENCY = "tensor dependency"
"""From the operator that wrote a tensor to one that reads it; an execution trace knows them."""
