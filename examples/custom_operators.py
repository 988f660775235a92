"""Custom operator in a step: its gradient, its fake version, and its sharding rule.

python examples/custom_operators.py
"""

import torch
from torch import nn

import shardc


@torch.library.custom_op("example::soft_clip", mutates_args=())
def soft_clip(x: torch.Tensor, bound: float) -> torch.Tensor:
    """Return ``bound * tanh(x / bound)`` of each element."""
    return bound * torch.tanh(x / bound)


@torch.library.custom_op("example::soft_clip_backward", mutates_args=())
def soft_clip_backward(grad: torch.Tensor, clipped: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the gradient, computed from the result."""
    return grad * (1 - (clipped / bound) ** 2)


soft_clip.register_fake(lambda x, bound: torch.empty_like(x))
soft_clip_backward.register_fake(lambda grad, clipped, bound: torch.empty_like(grad))


def keep(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.bound = inputs[1]


def backward(ctx, grad):
    return soft_clip_backward(grad, ctx.saved_tensors[0], ctx.bound), None


soft_clip.register_autograd(backward, setup_context=keep)


@shardc.rule("example::soft_clip", samples=[(torch.randn(4, 6), 2.0)])
def soft_clip_rule(call):
    """Return the rule: every dim may be sharded."""
    return "([...])->([...])"


@shardc.rule("example::soft_clip_backward", samples=[(torch.randn(4, 6), torch.randn(4, 6), 2.0)])
def soft_clip_backward_rule(call):
    return "([...],[...])->([...])"


class Clip(nn.Module):
    """Module that calls the operator."""

    def forward(self, x):
        return soft_clip(x, 2.0)


loss = lambda output, batch: nn.functional.mse_loss(output, batch[0])  # noqa: E731


def build():
    """Return the model, its optimizer, the loss, and a batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), Clip(), nn.Linear(64, 16))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), (torch.randn(8, 16),), loss


def main():
    """Prove the step on simulated devices, then train on this one."""
    model, optimizer, batch, _ = build()
    mesh = {"data": 2, "tensor": 2}
    proof = shardc.compile_step(model, optimizer, batch, loss=loss, mesh=mesh, plan="data*tensor").check()
    print("proved" if proof.passed else proof.render())
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
