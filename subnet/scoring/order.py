"""Whose place in a round's ranking the first held-out samples leave open: those get the rest of the samples too.

Not the rating of ranks (`ratings`). A two-stage sequential evaluation with a bound: in a swarm of equal machines
everybody's place is open, and more forwards would only rank noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

OPEN = 1.0
"""Neighbours less than this many standard errors of their paired difference apart are undecided."""


def undecided(drops: Mapping[str, NDArray[np.float64]]) -> set[str]:
    """hotkeys of neighbours by mean drop that are undecided; the closest pairs first, at most half of all hotkeys.

    `drops`: float64 [samples] per hotkey, loss drops on the same samples. A pure function of the drops, the same for
    every validator up to rounding; a pair that rounding moves over the edge changes how well two are measured, not who
    they are. Broken contributions (a drop that is not finite) are decided: they are last.
    """
    finite = {hotkey: x for hotkey, x in drops.items() if np.isfinite(x).all()}
    order = sorted(finite, key=lambda hotkey: (float(finite[hotkey].mean()), hotkey))
    pairs = []
    for low, high in pairwise(order):
        gap = finite[high] - finite[low]
        error = float(gap.std(ddof=1)) / math.sqrt(gap.size) if gap.size > 1 else math.inf
        if float(gap.mean()) < OPEN * error:
            pairs.append((float(gap.mean()) / error, low, high))
    chosen: set[str] = set()
    for _, low, high in sorted(pairs):
        if len(chosen | {low, high}) > len(drops) // 2:
            break
        chosen |= {low, high}
    return chosen
