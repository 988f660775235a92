"""Pooling and depthwise convolutions in one to three dims: an element reads its window of pixels; a gradient,
the windows that have its pixel.
"""

from shardc.passes.fuse.lower.pooling import adaptive, depthwise, maximum, mean

__all__ = ["adaptive", "depthwise", "maximum", "mean"]
