"""Logs of monitoring: what nvidia-smi, DCGM and amd-smi wrote while a trace was recorded."""

from htagraph.readers.monitoring.placement import is_monitoring, with_monitoring

__all__ = ["is_monitoring", "with_monitoring"]
