"""A hundred edits of the script in ``project``, each at one place, with the effect of each.

No edit moves a line: a program holds its source lines, so one that does is never taken for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

SCRIPT, MODEL, SETTINGS, HELPER = (f"edited_{name}.py" for name in ("script", "model", "settings", "helper"))


class Changes(Enum):
    """What an edit changes: the losses, other files of the artefact alone, or nothing."""

    LOSSES = "losses"
    ARTEFACT = "artefact"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Edit:
    """``old`` becomes ``new`` in ``file``, and the process has these environment variables besides."""

    kind: str
    file: str
    old: str
    new: str
    changes: Changes = Changes.LOSSES
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.new.strip() or dict(self.environment)}"


Row = tuple[str, str] | tuple[str, str, Changes]


def _edits(kind: str, file: str, *rows: Row) -> list[Edit]:
    return [Edit(kind, file, *row) for row in rows]


def _environment(changes: Changes, **variables: str) -> Edit:
    return Edit("environment", SCRIPT, "", "", changes, variables)


_LOSSES, _ARTEFACT, _NOTHING = Changes
_MODE = "model.train()"
_RATE = 'lr=rates["lr"]'
_PATCH = 'patch.object(Block, "mixed", Block.mixed)'
_CALL = "loss=make_loss(weight), fuse=False"
_MESH = 'mesh, plan = {"data": 1}, "data"'
_OUTPUT = "self.head(self.extra(x) * self.scale / TEMPERATURE)"
_ADAMW = 'torch.optim.AdamW(groups, lr=rates["lr"], betas=(0.9, 0.99), eps=1e-8)'

EDITS = [
    *_edits(
        "script",
        SCRIPT,
        ('F.mse_loss(output, batch["target"])', 'F.l1_loss(output, batch["target"])'),
        ('F.mse_loss(output, batch["target"])', 'F.mse_loss(output, batch["target"], reduction="sum")'),
        ("x.abs().pow(power).mean()", "x.abs().pow(power).amax()"),
        ("0.01 * smooth(output).mean()", "0.02 * smooth(output).mean()"),
        ("weight * penalty(output)", "weight * penalty(output.detach())"),
        ("torch.manual_seed(0)", "torch.manual_seed(2)"),
        ("manual_seed(1)", "manual_seed(3)"),
        (_MODE, "nn.init.ones_(model.head.weight)"),
        (_MODE, "model.head = model.first"),
        (_MODE, "model.train()  # said twice", _NOTHING),
    ),
    *_edits(
        "model",
        MODEL,
        ("self.up(self.norm(x))", "self.up(x)"),
        ("self.extra(x) * self.scale", "self.extra(x) + self.scale"),
        ("F.leaky_relu(x, self.slope) + self.shift", "F.leaky_relu(x, self.slope) - self.shift"),
        ("hidden.clamp(*self.limits)", "hidden.clamp(-0.2, 0.2)"),
        ("self.seen += 1.0", "self.seen += 1.0; x = x + self.seen"),
        ("self.seen += 1.0", "self.seen += 2.0", _ARTEFACT),
        ("self.first(input) + OFFSETS", "self.first(input).exp() + OFFSETS"),
        ("centered(x))", "centered(x).detach())"),
        ("nn.LayerNorm(", "nn.RMSNorm("),
        ("x.clamp(-CLIP, CLIP)", "x.clamp(-CLIP, CLIP * 2)", _NOTHING),
    ),
    *_edits(
        "configuration",
        SETTINGS,
        ("hidden: int = 16", "hidden: int = 24"),
        ("width: int = 8", "width: int = 8  # as OFFSETS", _NOTHING),
        ("blocks: int = 1", "blocks: int = 2"),
        ('"gelu"', '"tanh"'),
        ('"gelu"', '"smooth"'),
        ("dropout: float = 0.0", "dropout: float = 0.25"),
        ("eps: float = 1e-5", "eps: float = 1e-1"),
        ("bias: bool = True", "bias: bool = False"),
        ("tied: bool = False", "tied: bool = True"),
        ("(1.0, 0.5)", "(0.9, 0.5)"),
        ("(1.0, 0.5)", "(1.0, 0.4)", _NOTHING),
        ('"lr": 0.01', '"lr": 0.02'),
        ('"decay": 0.1', '"decay": 0.5'),
    ),
    *_edits(
        "default argument",
        MODEL,
        ("factor: float = 0.9", "factor: float = 0.8"),
        ("power: int = 1", "power: int = 3"),
        ("residual: float = 1.0", "residual: float = 1.25"),
        ("target: Tensor | None = None", "target: object = None", _NOTHING),
    ),
    *_edits("default argument", SCRIPT, ("power: float = 2.0", "power: float = 3.0")),
    *_edits(
        "closure",
        MODEL,
        ("return factor * x**power", "return factor + x**power"),
        ("return factor * x**power", "return (factor - 0.5) * x**power"),
        ("scaled_by(factor)", "scaled_by(factor * 0.5)"),
        ("lambda x: x * 0.8", "lambda x: x * 0.7"),
        ("lambda x: x * 0.8", "lambda x, by=0.6: x * by"),
    ),
    *_edits(
        "closure",
        SCRIPT,
        ("make_loss(weight)", "make_loss(weight * 2)"),
        (_CALL, "loss=lambda out, b: make_loss(0.1)(out * 2, b), fuse=False"),
    ),
    *_edits(
        "global",
        MODEL,
        ("TEMPERATURE = 4.0", "TEMPERATURE = 3.0"),
        ("TEMPERATURE = 4.0", "TEMPERATURE = 2.0 * 2.0", _NOTHING),
        ('"gain": 1.5', '"gain": 1.25'),
        ('"unread": 1.0', '"unread": 2.0', _NOTHING),
        ("POWERS = [1, 2]", "POWERS = [1, 3]"),
        ("CLIP: float | None = None", "CLIP: float | None = 0.5"),
        ('{"gelu": F.gelu,', '{"gelu": F.silu,'),
        ('"tanh": torch.tanh', '"tanh": torch.sin', _NOTHING),
    ),
    *_edits("global", SCRIPT, ("WEIGHT = 0.7", "WEIGHT = 0.3")),
    *_edits(
        "attribute",
        MODEL,
        ("slope = 0.2", "slope = 0.4"),
        ("self.gate = gate", "self.gate = gate * 2"),
        ("[-3.0, 3.0]", "[-0.1, 0.1]"),
        ("torch.linspace(0, 1, settings.width)", "torch.linspace(0, 2, settings.width)"),
        ("torch.ones(settings.width)", "torch.full((settings.width,), 1.5)"),
    ),
    *_edits(
        "attribute",
        SCRIPT,
        (_MODE, "model.blocks[0].gate = -1.0"),
        (_MODE, "model.blocks[0].limits.reverse()"),
        (_MODE, "model.blocks[0].norm.eps = 0.5"),
        (_MODE, "model.blocks[0].activation = torch.relu"),
        (_MODE, "model.blocks[0].unread = 3", _NOTHING),
    ),
    *_edits(
        "patched method",
        SCRIPT,
        (_PATCH, 'patch.object(Block, "mixed", lambda self, x: x.sin() * self.slope)'),
        (_PATCH, 'patch.object(Block, "mixed", patched)', _ARTEFACT),
        (_PATCH, 'patch.object(edited_model, "rescaled", lambda x: x * 3)'),
        (_PATCH, 'patch.object(nn.Linear, "forward", lambda m, x: F.linear(x, m.weight.sin(), m.bias))'),
        (_PATCH, 'patch.object(F, "leaky_relu", lambda x, slope: x * slope)'),
        (_PATCH, 'patch.dict(edited_model.TABLE, {"gain": 0.5})'),
        (_MODE, "model.blocks[0].mixed = lambda x: x.cos()"),
        (_MODE, "model.register_forward_hook(lambda m, args, out: out * 2)"),
        (_MODE, "model.scale.register_hook(lambda grad: grad * 0.5 + 1)"),
    ),
    *_edits(
        "optimizer",
        SCRIPT,
        (_RATE, 'lr=rates["lr"] * 3'),
        (_RATE, 'lr=torch.tensor(rates["lr"])', _ARTEFACT),
        ("betas=(0.9, 0.99)", "betas=(0.5, 0.9)"),
        ("eps=1e-8", "eps=1e-2"),
        ("eps=1e-8", "eps=1e-8 * 1", _NOTHING),
        ("eps=1e-8", "eps=1e-8, amsgrad=True", _ARTEFACT),
        ("eps=1e-8", "eps=1e-8, maximize=True"),
        ("torch.optim.AdamW(groups", "torch.optim.Adam(groups"),
        (_ADAMW, "torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)"),
        ("p.dim() > 1", "p.dim() > 1 and p is not model.head.weight"),
        ('"weight_decay": 0.0', '"weight_decay": 0.2'),
    ),
    *_edits(
        "requires_grad",
        SCRIPT,
        ("model.scale.requires_grad_(True)", "model.scale.requires_grad_(False)"),
        (_MODE, "model.first.requires_grad_(False)"),
        (_MODE, "model.blocks[0].shift.requires_grad_(True)", _NOTHING),
    ),
    *_edits(
        "option",
        SCRIPT,
        (_CALL, f"{_CALL}, clip_grad_norm=0.05"),
        (_CALL, f"{_CALL}, autocast=torch.bfloat16"),
        (_CALL, f"{_CALL}, micro_batches=2, per_micro_batch=True", _ARTEFACT),
        (_CALL, f"{_CALL}, seed=5", _ARTEFACT),
        (_CALL, f'{_CALL}, outputs={{"first": lambda out, b: out[0, 0]}}', _ARTEFACT),
        (_CALL, "loss=make_loss(weight)", _ARTEFACT),
        (_CALL, 'loss=make_loss(weight), rounding="eager"', _ARTEFACT),
        (_CALL, 'loss=make_loss(weight), matmuls="extern"', _ARTEFACT),
    ),
    *_edits(
        "plan",
        SCRIPT,
        (_MESH, 'mesh, plan = {"data": 2, "tensor": 2}, "data*tensor"', _ARTEFACT),
        (_MESH, 'mesh, plan = {"data": 2, "tensor": 2}, "zero3*tensor"', _ARTEFACT),
        (_MESH, 'mesh, plan = {"data": 4}, "zero1"', _ARTEFACT),
        (_MESH, 'mesh, plan = {"data": 4}, {"head.weight": ["data", None]}', _ARTEFACT),
        (_MESH, 'mesh, plan = {"data": 4}, {"head.weight": [None, "data"]}', _ARTEFACT),
    ),
    *_edits(
        "batch",
        SCRIPT,
        ("ROWS = 4", "ROWS = 6"),
        ("DTYPE = torch.float32", "DTYPE = torch.float64"),
        ('{"input": x, "target": y}', '{"input": x, "target": x}'),
        ('{"input": x, "target": y}', '{"target": y, "input": x}', _ARTEFACT),
    ),
    *_edits(
        "autograd function",
        MODEL,
        ("return x * 2.0", "return x * 2.5"),
        ("grads[0] * 2.0 + 0.0 * x", "grads[0] * 4.0 + 0.0 * x"),
        ("grads[0] * 2.0 + 0.0 * x", "grads[0] * 2.0 + 0.5 * x"),
    ),
    *_edits(
        "constant",
        MODEL,
        ("0.2, 0.0, 0.3", "0.2, 9.0, 0.3"),
        ("torch.tensor(0.75)", "torch.tensor(0.25)"),
        ("[1, 0, 2, 3, 4, 5, 6, 7]", "[1, 0, 2, 3, 4, 5, 7, 6]"),
        ("* SHARED +", "* torch.tensor([0.5, 1, 1, 1, 1, 1, 1, 2]) +"),
        ("* SHARED +", "* torch.full((8,), 0.75) +", _ARTEFACT),
    ),
    *_edits(
        "imported helper",
        HELPER,
        ("LEAK = 0.1", "LEAK = 0.3"),
        ("by: float = 0.25", "by: float = 0.75"),
        ("factor: float = 1.5", "factor: float = 1.75"),
        ("x.mean(-1, keepdim=True)", "x.amax(-1, keepdim=True)"),
        ("torch.sigmoid(x * by)", "torch.sigmoid(x - by)"),
    ),
    _environment(Changes.LOSSES, EDITED_STYLE="odd"),
    _environment(Changes.NOTHING, EDITED_STYLE="plain"),
    _environment(Changes.LOSSES, EDITED_WEIGHT="0.2"),
]
