"""Steps, one with too little room at its experts, against eager training: ``rerun_worker.py FUSE``."""

from __future__ import annotations

import sys
import warnings

import torch
import torch.distributed as dist
from rank_main import run
from torch import Tensor, nn

import shardc

ROWS, EXPERTS, STEPS = 24, 4, 4


class Chosen(nn.Module):
    """An expert for each row, as the batch says, and a count of steps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, 6, 10) / 4)
        self.down = nn.Parameter(torch.randn(EXPERTS, 10, 6) / 4)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        self.seen += 1
        hidden = torch.bmm(x.unsqueeze(1), self.up[kinds]).relu()
        return torch.bmm(hidden, self.down[kinds]).squeeze(1).square().mean()


def made() -> tuple[Chosen, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Chosen()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def main(fuse: bool) -> None:
    model, optimizer = made()
    eager, own = made()
    batches = [(torch.randn(ROWS, 6), torch.arange(ROWS) % EXPERTS) for _ in range(STEPS)]
    batches[2][1][ROWS // 2 :] = 1  # of the second rank's rows alone
    options = {"loss": lambda output, _: output, "fuse": fuse}
    options |= {"expert_capacity": 1.25, "on_overflow": "rerun", "expert_chunks": 2}
    step = shardc.compile_step(model, optimizer, batches[0], mesh={"expert": 2}, plan="expert", **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number, batch in enumerate(batches):
            own.zero_grad()
            wanted = eager(*batch)
            wanted.backward()
            own.step()
            torch.testing.assert_close(step(batch), wanted.detach(), rtol=1e-5, atol=1e-6)
            assert step.steps_done == number + 1
    warned = [str(warning.message) for warning in said if "RoomCompiled" in str(warning.message)]
    assert len(warned) == (dist.get_rank() == 0), warned
    for name, value in {**dict(eager.named_parameters()), "seen": eager.seen}.items():
        found = step.state_dict()[name].full_tensor()
        torch.testing.assert_close(found, value.detach(), rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(lambda: main(sys.argv[1] == "1"), "as it should")
