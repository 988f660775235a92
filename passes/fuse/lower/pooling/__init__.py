"""Lowerings of pooling, patches and depthwise convolutions over one to three dims.

An element of the result reads its window of pixels; an element of the gradient reads the windows that contain
its pixel.
"""

from shardc.passes.fuse.lower.pooling import adaptive, depthwise, maximum, mean, patches

__all__ = ["adaptive", "depthwise", "maximum", "mean", "patches"]
