"""The weighted, norm-clipped mean of pseudo-gradients, the same bits on every machine.

Not a robust estimator: one outlier is bounded by the clip, not removed. Order and operations are fixed (one IEEE fp32
multiply, one add per element and member, in roster order) so that an auditor can replay a reducer exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# Elements handled at once: sum and product of this many stay in a core's cache. It cannot change a bit of the result.
_CHUNK = 2**18
_NORM_CHUNK = 2**16


def clip_factors(norms: Sequence[float]) -> list[float]:
    """min(1, median / norm) of each declared norm; the median is over the norms above zero, 1 where there is none.

    Raises ValueError for a norm that is negative or not finite.
    """
    if not all(math.isfinite(n) and n >= 0.0 for n in norms):
        raise ValueError("norms must be finite and not negative")
    median = _median([n for n in norms if n > 0.0])
    return [median / n if n > median else 1.0 for n in norms]


def mean_weights(tokens: Sequence[int], norms: Sequence[float]) -> list[float]:
    """Weight of each member in the mean, an fp32 value: tokens_i / sum(tokens) * clip_i of `clip_factors`.

    `tokens`: tokens trained, `norms`: declared L2 norms of the whole pseudo-gradients. The median is over the norms
    above zero (what changes nothing sets no scale), the mean of the middle two for an even count. Integer sum, then
    IEEE doubles one operation at a time, rounded to fp32 at the end. A clipped member's weight goes to nobody.

    Raises ValueError for nobody, no tokens at all, a negative count, or a norm that is negative or not finite.
    """
    if len(tokens) != len(norms):
        raise ValueError(f"one norm per token count is needed, got {len(tokens)} and {len(norms)}")
    if not any(tokens) or min(tokens) < 0:
        raise ValueError("there is nobody to average, or token counts are negative or all zero")
    total = sum(tokens)
    clips = clip_factors(norms)
    return [float(np.float32(t / total * clip)) for t, clip in zip(tokens, clips, strict=True)]


def reduce_part(decoded: Sequence[Tensor | None], tokens: Sequence[int], norms: Sequence[float]) -> Tensor:
    """Mean, fp32 `[n]`, of the members present, in the order given; None stands for an absent one.

    `decoded`: fp32 CPU vectors `[n]`; `tokens` and `norms` of all members, absent ones included. The first product
    starts the sum, every later one is added to it. Raises ValueError when nobody is present, or as `mean_weights`.
    """
    members = [(x, t, n) for x, t, n in zip(decoded, tokens, norms, strict=True) if x is not None]
    weights = mean_weights([t for _, t, _ in members], [n for _, _, n in members])
    mean = torch.empty_like(members[0][0])
    product = torch.empty(min(_CHUNK, mean.numel()), dtype=torch.float32)
    for start in range(0, mean.numel(), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        total = mean[chunk]
        torch.mul(members[0][0][chunk], weights[0], out=total)
        for (x, _, _), weight in zip(members[1:], weights[1:], strict=True):
            total.add_(torch.mul(x[chunk], weight, out=product[: total.numel()]))
    return mean


def norm(x: Tensor) -> float:
    """L2 norm of a flat fp32 vector, summed in fp64.

    Declared and compared with a tolerance, never recomputed exactly: the order of the sum is the library's.
    """
    return math.sqrt(sum(float(torch.dot(d, d)) for d in (c.to(torch.float64) for c in x.split(_NORM_CHUNK))))


def _median(values: list[float]) -> float:
    if not values:
        return 0.0
    values.sort()
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    return low if low == high else low * 0.5 + high * 0.5
