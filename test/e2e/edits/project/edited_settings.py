"""Settings of the script that ``test_edits.py`` edits."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    width: int = 8
    hidden: int = 16
    blocks: int = 1
    activation: str = "gelu"
    dropout: float = 0.0
    eps: float = 1e-5
    bias: bool = True
    tied: bool = False
    gates: tuple[float, ...] = (1.0, 0.5)
    rates: dict[str, float] = field(default_factory=lambda: {"lr": 0.01, "decay": 0.1})


SETTINGS = Settings()
