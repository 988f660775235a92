"""Language models whose loss holds no logits: ignored labels, a bias, label smoothing, weights of classes,
tied words.
"""

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 70


class Net(nn.Module):
    def __init__(self, bias, tied):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 24), nn.Linear(24, WORDS, bias=bias)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids, **settings):
        labels = F.pad(ids, (0, 1), value=-100)[..., 1:].contiguous()
        return F.cross_entropy(
            self.head(self.words(ids).tanh()).float().view(-1, WORDS), labels.view(-1), **settings
        )


def run(compile):
    torch.manual_seed(0)
    ids, weight = torch.randint(WORDS, (3, 9)), torch.rand(WORDS)
    kinds = [(True, False, {"label_smoothing": 0.1}), (False, True, {"weight": weight})]
    made = []
    for bias, tied, settings in kinds:
        model = Net(bias, tied)
        loss = compile(model, options={"matmuls": "generated"})(ids, **settings)
        loss.backward()
        made += [loss.detach(), *(p.grad for p in model.parameters())]
    return made
