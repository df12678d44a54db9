"""How much each contribution counts before anyone looks at its values: tokens trained, clipped by the declared norm.

Not a defence against lies about the norm: a reducer refuses parts longer than was declared, and a rule sees the rest.
Scalars only, in IEEE doubles one operation at a time, so that every machine gets the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_NORM_CHUNK = 2**16


def clip_factors(norms: Sequence[float]) -> list[float]:
    """min(1, median / norm) of each declared norm; the median is over the norms above zero, 1 where there is none.

    Raises ValueError for a norm that is negative or not finite.
    """
    if not all(math.isfinite(n) and n >= 0.0 for n in norms):
        raise ValueError("norms must be finite and not negative")
    middle = median([n for n in norms if n > 0.0])
    return [middle / n if n > middle else 1.0 for n in norms]


def mean_weights(tokens: Sequence[int], norms: Sequence[float]) -> list[float]:
    """Weight of each member in the mean, an fp32 value: tokens_i / sum(tokens) * clip_i of `clip_factors`.

    `tokens`: tokens trained, `norms`: declared L2 norms of the whole pseudo-gradients. The median is over the norms
    above zero (what changes nothing sets no scale), the mean of the middle two for an even count. Integer sum, then
    IEEE doubles one operation at a time, rounded to fp32 at the end. A clipped member's weight goes to nobody.

    Raises ValueError for nobody, no tokens at all, a negative count, or a norm that is negative or not finite.
    """
    if len(tokens) != len(norms):
        raise ValueError(f"one norm per token count is needed, got {len(tokens)} and {len(norms)}")
    clips = clip_factors(norms)
    return [fp32(share * clip) for share, clip in zip(token_shares(tokens), clips, strict=True)]


def token_shares(tokens: Sequence[int]) -> list[float]:
    """tokens_i / sum(tokens), doubles. Raises ValueError for nobody, no tokens at all, or a negative count."""
    if not any(tokens) or min(tokens) < 0:
        raise ValueError("there is nobody to average, or token counts are negative or all zero")
    total = sum(tokens)
    return [t / total for t in tokens]


def norm(x: Tensor) -> float:
    """L2 norm of a flat fp32 vector, summed in fp64.

    Declared and compared with a tolerance, never recomputed exactly: the order of the sum is the library's.
    """
    return math.sqrt(sum(float(torch.dot(d, d)) for d in (c.to(torch.float64) for c in x.split(_NORM_CHUNK))))


def median(values: Sequence[float]) -> float:
    """The middle value, the mean of the middle two for an even count, 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else low * 0.5 + high * 0.5


def fp32(value: float) -> float:
    """The fp32 value nearest to a double, ties to even."""
    return float(np.float32(value))
