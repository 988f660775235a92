"""The architectures of ``transformers`` that the zoo is made of: every class of seven of its automatic
mappings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers
from configs import LAYERS, tiny_config
from overrides import OVERRIDES
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "speech-seq2seq": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "audio": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "ctc": "MODEL_FOR_CTC_MAPPING_NAMES",
}


@dataclass(frozen=True)
class Architecture:
    """One model class, the kind of batch that it is trained on, and the type of its configuration."""

    name: str
    kind: str
    model_type: str

    @property
    def model_class(self) -> Any:
        return getattr(transformers, self.name)

    def config(self, layers: int = LAYERS, pixels: int | None = None) -> Any:
        """Its tiny random configuration; ``pixels``: of a row and of a column of images."""
        config = tiny_config(self.model_class.config_class or CONFIG_MAPPING[self.model_type], layers)
        for name, value in {"use_cache": False, **OVERRIDES.get(self.name, {})}.items():
            setattr(config, name, value)
        if pixels is not None:
            sides = isinstance(getattr(config, "image_size", None), (tuple, list))
            config.image_size = (pixels, pixels) if sides else pixels
        return config


def _all() -> dict[str, Architecture]:
    found: dict[str, Architecture] = {}
    for kind, mapping in KINDS.items():
        for model_type, names in getattr(modeling_auto, mapping).items():
            for name in names if isinstance(names, tuple) else (names,):
                found.setdefault(name, Architecture(name, kind, model_type))
    return found


ARCHITECTURES = _all()
"""By class name. A class that stands in several mappings has the kind of the first."""
