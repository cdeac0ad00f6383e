"""Dumps of PyTorch's Flight Recorder: the last collectives of each rank of a job that hangs."""
