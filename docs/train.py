"""Train a small network; loading a batch takes 40 ms. ``--workers 2`` loads ahead."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import htagraph

N_STEPS = 16


class Pictures(Dataset):
    """Batches from a slow disk."""

    def __len__(self) -> int:
        """Count them."""
        return N_STEPS

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Read a batch."""
        time.sleep(0.04)
        return torch.randn(256, 256), torch.randint(0, 10, (256,))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Pictures(), batch_size=None, num_workers=asked.workers)
    with htagraph.profile("runs/", steps=8) as profiler:
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
