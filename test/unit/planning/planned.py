"""A small Llama's config, for tests of planning."""

import json
from pathlib import Path

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}


def write_config(folder: Path, **changes: object) -> Path:
    """Its file, with some keys changed; None takes a key away."""
    held = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    path = folder / "config.json"
    path.write_text(json.dumps(held))
    return path
