"""Rules of Fourier transforms: transformed dims stay whole, all others may be split."""

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import FIRST, aligned
from shardc.dialects.rules.rule import Rule, rule_for


@rule_for("aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r")
def transform(call: OpCall) -> Rule:
    """Rule of transforms, which are linear: ([a,b])->([a,c]) replicate={b,c}."""
    return aligned(call, whole=call["dim"], sets=FIRST)
