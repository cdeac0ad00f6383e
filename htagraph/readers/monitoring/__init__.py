"""Logs that nvidia-smi, DCGM or amd-smi wrote while a trace was recorded."""
