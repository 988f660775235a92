"""Hand-written nets of kinds that are missing in ``transformers``."""

from __future__ import annotations

from nets import convolution, diffusion, experts, graph, recommendation, recurrent, unet
from nets.net import Net

NETS: dict[str, Net] = {
    "unet": unet.NET,
    "lstm": recurrent.LSTM,
    "gru-cell": recurrent.GRU_CELL,
    "graph": graph.NET,
    "recommendation": recommendation.NET,
    "diffusion-transformer": diffusion.NET,
    "grouped-dilated-convolution": convolution.NET,
    "mixture-of-experts": experts.NET,
}
