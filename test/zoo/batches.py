"""A random batch for each kind of model, and a loss for those that make none of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from architectures import Architecture
from configs import VOCAB
from torch import Tensor, nn

BATCH, LENGTH, SAMPLES, FRAMES = 4, 16, 2000, 96
FIRST, LAST = 10, VOCAB - 12
"""Tokens between these are no special ones in any tiny configuration."""

OF_CHUNKS = 256
"""Tokens of linear attention by chunks of 64, which is fixed: one for each of four devices."""
CHUNKED = ("BailingHybrid", "KimiLinear", "OlmoHybrid", "Qwen3Next", "Qwen3_5")
"""How the names of their classes begin."""

UNLABELLED = {
    "DiaForConditionalGeneration",
    "GitForCausalLM",
    "MusicgenForCausalLM",
    "MusicgenMelodyForCausalLM",
    "ShieldGemma2ForImageClassification",
}
"""Models whose labels have a shape of their own: they are trained on their scores."""

Batch = dict[str, Tensor]


def batch_for(architecture: Architecture, model: nn.Module) -> Batch:
    """``BATCH`` random samples as keyword arguments of ``model``, labels among them if it takes any."""
    made = (OWN.get(architecture.name) or MAKERS[architecture.kind])(model)
    taken = set(inspect.signature(model.forward).parameters)
    if architecture.name in UNLABELLED:
        taken.discard("labels")
    return {name: value for name, value in made.items() if name in taken}


def loss_of(output: Any, batch: Any) -> Tensor:
    """The model's own loss, or the mean square of its first floating-point result."""
    loss = output if isinstance(output, Tensor) else getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss if loss.dim() == 0 else loss.mean()
    values = output.values() if hasattr(output, "values") else output
    first = next(v for v in values if isinstance(v, Tensor) and v.is_floating_point() and v.requires_grad)
    return first.square().mean()


def tokens(length: int = LENGTH) -> Tensor:
    return torch.randint(FIRST, LAST, (BATCH, length))


def _causal(model: nn.Module) -> Batch:
    ids = tokens(OF_CHUNKS if type(model).__name__.startswith(CHUNKED) else LENGTH)
    return {"input_ids": ids, "labels": ids.clone()}


def _masked(model: nn.Module) -> Batch:
    """Sequences of different lengths; a third of the tokens is to be guessed."""
    ids = tokens()
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1))
    labels = torch.where(torch.rand(BATCH, LENGTH) < 0.3, ids, -100)
    labels[:, 0] = ids[:, 0]
    return {"input_ids": ids, "attention_mask": (torch.arange(LENGTH) < lengths).long(), "labels": labels}


def _pairs(model: nn.Module) -> Batch:
    if "decoder_input_ids" not in inspect.signature(model.forward).parameters:
        return _causal(model)  # a language model that may also hear, given text alone
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    target = {"labels": tokens(LENGTH // 2), "decoder_input_ids": tokens(LENGTH // 2)}
    return {"input_ids": tokens(), "attention_mask": mask, **target}


def _sound(model: nn.Module) -> Batch:
    """A waveform, or a spectrogram of the number of bands that the model is made for."""
    if model.main_input_name == "input_ids":
        return {"input_ids": tokens()}
    if model.main_input_name == "inputs":  # an encoder of sound with any decoder
        return {"inputs": torch.randn(BATCH, SAMPLES)}
    config = _audio_config(model.config)
    bands = (
        _first(
            config,
            "num_mel_bins",
            "feature_projection_input_dim",
            "input_feat_per_channel",
            "feature_size",
            "input_dim",
        )
        or 16
    )
    frames = 2 * config.max_source_positions if hasattr(config, "max_source_positions") else FRAMES
    frames = _first(config, "max_length") or frames
    if model.main_input_name == "input_values" and not hasattr(config, "max_length"):
        return {"input_values": torch.randn(BATCH, SAMPLES)}
    bands_first = "whisper" in type(model).__name__.lower()
    shape = (BATCH, bands, frames) if bands_first else (BATCH, frames, bands)
    assert isinstance(model.main_input_name, str)
    return {model.main_input_name: torch.randn(shape)}


def _audio_config(config: Any) -> Any:
    return next(
        (
            c
            for name in ("audio_config", "encoder_config", "encoder")
            if (c := getattr(config, name, None)) is not None and not isinstance(c, int)
        ),
        config,
    )


def _first(config: Any, *names: str) -> Any:
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)


def _speech(model: nn.Module) -> Batch:
    if "decoder_input_ids" not in inspect.signature(model.forward).parameters:
        return _causal(model)
    return {**_sound(model), "labels": tokens(LENGTH // 2), "decoder_input_ids": tokens(LENGTH // 2)}


def _classified_sound(model: nn.Module) -> Batch:
    return {**_sound(model), "labels": torch.randint(0, model.config.num_labels, (BATCH,))}


def _images(model: nn.Module) -> Batch:
    config = model.config
    if model.main_input_name == "input_ids":  # pixels as colours of a palette
        return {"input_ids": tokens(), "labels": torch.randint(0, config.num_labels, (BATCH,))}
    size = (
        getattr(config, "image_size", None)
        or getattr(getattr(config, "vision_config", None), "image_size", None)
        or 32
    )
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    pixels = torch.randn(BATCH, _first(config, "num_channels") or 3, height, width)
    labels = torch.randint(0, config.num_labels, (BATCH,))
    assert isinstance(model.main_input_name, str)
    return {model.main_input_name: pixels, "labels": labels}


MAKERS: dict[str, Callable[[nn.Module], Batch]] = {
    "causal": _causal,
    "masked": _masked,
    "seq2seq": _pairs,
    "speech-seq2seq": _speech,
    "image": _images,
    "audio": _classified_sound,
    "ctc": _sound,  # without labels: their losses read the labels' values, which PyTorch cannot trace
}


def _channels_of_codes(model: nn.Module) -> Batch:
    """Text in, several codes of sound a step out."""
    channels = model.config.decoder_config.num_channels
    codes = torch.randint(0, model.config.decoder_config.vocab_size, (BATCH, LENGTH // 2, channels))
    return {"input_ids": tokens(), "decoder_input_ids": codes}


def _codes_beside_text(model: nn.Module) -> Batch:
    """At each step a token and a code of every codebook."""
    ids = tokens()
    codes = torch.randint(
        0, model.config.codebook_vocab_size - 1, (BATCH, LENGTH, model.config.num_codebooks)
    )
    return {"input_ids": torch.cat([ids[..., None], codes], -1), "labels": ids.clone()}


def _sound_and_text(model: nn.Module) -> Batch:
    """As many frames of a spectrogram as make one embedding a token."""
    config = model.config
    frames = 2 * config.downsample_factor * LENGTH
    return {**_causal(model), "input_features": torch.randn(BATCH, config.audio_config.num_mel_bins, frames)}


def _stacked_frames(model: nn.Module) -> Batch:
    """Four frames of a spectrogram side by side; layers halve their number twice and attend in blocks."""
    return {"input_features": torch.randn(BATCH, 512, 4 * model.config.encoder_config.num_mel_bins)}


def _more_frames(model: nn.Module) -> Batch:
    """Frames of which two strided convolutions make 62 tokens."""
    return {"input_features": torch.randn(BATCH, 260, model.config.encoder_config.num_mel_bins)}


def _long_waveform(model: nn.Module) -> Batch:
    """256 frames of 80 samples, which four devices share out evenly; encoders make one token of several."""
    return {**_speech(model), "input_values": torch.randn(BATCH, 256 * 80)}


def _patches(model: nn.Module) -> Batch:
    """Images of several forms, already cut into patches."""
    config = model.config.vision_config
    count = config.num_patches
    shapes = torch.tensor([[2, count // 2], [4, count // 4]]).repeat(BATCH // 2, 1)
    pixels = torch.randn(BATCH, count, config.num_channels * config.patch_size**2)
    labels = torch.randint(0, model.config.num_labels, (BATCH,))
    return {
        "pixel_values": pixels,
        "spatial_shapes": shapes,
        "pixel_attention_mask": torch.ones(BATCH, count),
        "labels": labels,
    }


OWN: dict[str, Callable[[nn.Module], Batch]] = {
    "DiaForConditionalGeneration": _channels_of_codes,
    "GraniteSpeech5ForCTC": _stacked_frames,
    "KyutaiSpeechToTextForConditionalGeneration": _codes_beside_text,
    "LasrForCTC": _more_frames,
    "MoonshineForConditionalGeneration": _long_waveform,
    "MoonshineStreamingForConditionalGeneration": _long_waveform,
    "Siglip2ForImageClassification": _patches,
    "VoxtralRealtimeForConditionalGeneration": _sound_and_text,
}
"""Models that take what no other of their kind takes."""
