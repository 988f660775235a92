"""Recurrent nets: torch's two-layer bidirectional LSTM, and a GRU cell stepped by a Python loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nets.net import Net

VOCAB, WIDTH, LENGTH = 32, 16, 8


class LSTMTagger(nn.Module):
    """A tag for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * WIDTH, 4)

    def forward(self, ids: Tensor, tags: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(ids))
        return F.cross_entropy(self.head(states).flatten(0, 1), tags.flatten())


class GRUClassifier(nn.Module):
    """A class for each sequence, from the cell's last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        inputs = self.embedding(ids)
        state = inputs.new_zeros(inputs.shape[0], WIDTH)
        for position in range(inputs.shape[1]):
            state = self.cell(inputs[:, position], state)
        return F.cross_entropy(self.head(state), labels)


def _ids() -> Tensor:
    return torch.randint(0, VOCAB, (4, LENGTH))


LSTM = Net(LSTMTagger, lambda: (_ids(), torch.randint(0, 4, (4, LENGTH))))
GRU_CELL = Net(GRUClassifier, lambda: (_ids(), torch.randint(0, 4, (4,))))
