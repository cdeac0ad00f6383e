"""Categories of events and flow points that mean something of their own."""

CRITICAL_PATH = "critical_path"
"""A path that was written into a trace; no part of what ran when it is read again."""

FORWARD_BACKWARD = "fwdbwd"
"""From a forward operator to its backward operator; PyTorch's profiler writes them."""

TENSOR_DEPENDENCY = "tensor dependency"
"""From the operator that wrote a tensor to one that reads it; an execution trace knows them."""
