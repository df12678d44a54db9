"""The rules by which contributions become one: mean, coordinate-wise trimmed mean, and centred clipping.

Not aware of peers or rounds: a pure function of vectors, tokens and declared norms, per part. Every rule first scales
each vector by `clip_factors` of the declared norms. Sources: Yin et al., arXiv 1803.01498 (trimmed mean, median);
Karimireddy, He, Jaggi, arXiv 2012.10333 (CenteredClip); Gorbunov et al., arXiv 2106.11257 (the same per part, BTARD).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from subnet.diloco.aggregate.exact import squared_distance, trimmed_sum, weighted_mean_of_senders, weighted_sum
from subnet.diloco.aggregate.weights import clip_factors, fp32, mean_weights, median, token_shares


class Rule(ABC):
    """How the vectors of those present become one. Equal rules give equal bits for equal members in equal order.

    `by_element`: what it makes of an element follows from the members' values there alone, and not from the rest of the
    part.
    """

    by_element: ClassVar[bool] = True

    @abstractmethod
    def reduce(self, members: Sequence[Tensor], tokens: Sequence[int], norms: Sequence[float]) -> Tensor:
        """fp32 `[n]` of `members`, fp32 `[n]` each, with all their `tokens` and declared `norms`; none is changed.

        Raises ValueError as `mean_weights`.
        """

    @abstractmethod
    def owed(self, lost: Tensor, members: Sequence[Tensor], tokens: Sequence[int]) -> Tensor:
        """What the members' weighted sum has to bring in again, fp32 `[n]`, to make up for `lost` of the result.

        Zero for a rule that is not linear: it would cut what stands out so much from one member.
        """

    @abstractmethod
    def longest(self, tokens: Sequence[int], norms: Sequence[float]) -> float:
        """The largest L2 norm the result can have when no member is longer than declared, but for rounding.

        Raises ValueError as `mean_weights`.
        """


@dataclass(frozen=True)
class Mean(Rule):
    """sum_i w_i x_i with w_i of `mean_weights`: a clipped member's weight goes to nobody.

    `over` says who counts at a coordinate that some sent as zero, as sparse codecs do. "all": everybody, so that a
    coordinate sent by a share s of the tokens moves by s times what its senders say. "senders": those with a non-zero
    value, sum w_i x_i / sum of their tokens' shares, so it moves by what they say, however few they are; one liar who
    is alone at a coordinate has it whole.
    """

    over: Literal["all", "senders"] = "all"

    def reduce(self, members: Sequence[Tensor], tokens: Sequence[int], norms: Sequence[float]) -> Tensor:
        weights = mean_weights(tokens, norms)
        if self.over == "all":
            return weighted_sum(members, weights)
        return weighted_mean_of_senders(members, weights, [fp32(share) for share in token_shares(tokens)])

    def owed(self, lost: Tensor, members: Sequence[Tensor], tokens: Sequence[int]) -> Tensor:
        """All of it; over senders, times the share of the tokens by which the mean was divided there."""
        if self.over == "all":
            return lost
        counted = torch.zeros_like(lost)
        for x, share in zip(members, token_shares(tokens), strict=True):
            counted += (x != 0.0) * share
        return lost * counted

    def longest(self, tokens: Sequence[int], norms: Sequence[float]) -> float:
        """By the triangle inequality; over senders, as if no two members sent the same coordinate."""
        if self.over == "all":
            return sum(w * n for w, n in zip(mean_weights(tokens, norms), norms, strict=True))
        return math.hypot(*_clipped_norms(tokens, norms))


@dataclass(frozen=True)
class Trimmed(Rule):
    """Per coordinate the mean of what is left without the b lowest and b highest values, b = floor(fraction * n).

    `fraction` in [0, 0.5]; b leaves one value at least of an odd, two of an even number n of members, so 0.5 is the
    coordinate-wise median. Those left count alike, whatever their tokens: breaking the rule then takes more than b
    members, which cost a registration each, not a claim about tokens, which costs nothing; and the result depends on
    the values alone, not on who holds them. Members without tokens are left out. A zero is a vote for no change: what
    at most b members sent (of one sign) is dropped, so this is no rule for codecs that send few coordinates.
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.fraction <= 0.5:
            raise ValueError(f"a trimmed mean drops a fraction from 0 to 0.5 at each end, got {self.fraction}")

    def reduce(self, members: Sequence[Tensor], tokens: Sequence[int], norms: Sequence[float]) -> Tensor:
        voters = _voters(tokens)
        clips = clip_factors([norms[i] for i in voters])
        drop = self._drop(len(voters))
        weights = [fp32(clip / (len(voters) - 2 * drop)) for clip in clips]
        return trimmed_sum([members[i] for i in voters], weights, drop)

    def owed(self, lost: Tensor, members: Sequence[Tensor], tokens: Sequence[int]) -> Tensor:
        return torch.zeros_like(lost)

    def longest(self, tokens: Sequence[int], norms: Sequence[float]) -> float:
        """sqrt(sum_i (clip_i norm_i)^2 / (n - b)): at each coordinate b more values are at least as far from zero."""
        lengths = _clipped_norms(tokens, norms)
        return math.hypot(*lengths) / math.sqrt(len(lengths) - self._drop(len(lengths)))

    def _drop(self, n: int) -> int:
        return min(math.floor(self.fraction * n), (n - 1) // 2)


@dataclass(frozen=True)
class CenteredClip(Rule):
    """v <- v + sum_i s_i (y_i - v) min(1, tau / |y_i - v|), `iterations` times, from the coordinate-wise median.

    y_i: members after the clip of the declared norms, s_i: shares of the tokens. tau = `radius` * the median of the
    first distances |y_i - v|, per part: it follows the honest members' own spread there, wherever in the model the part
    lies, and fewer than half of the members cannot move it out of the honest distances' range. The median starts it,
    not the last result, which would let past rounds into what must follow from the listed contributions alone, and is
    what history-aware attacks steer (arXiv 2208.09894). Members without tokens are left out.

    A zero is a value like any other. Of sparse vectors the median is near zero, and the rule becomes a norm clip there.
    """

    by_element: ClassVar[bool] = False

    radius: float
    iterations: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0.0 and self.iterations >= 1):
            raise ValueError(f"centred clipping needs a radius above 0 and 1 iteration, got {self}")

    def reduce(self, members: Sequence[Tensor], tokens: Sequence[int], norms: Sequence[float]) -> Tensor:
        voters = _voters(tokens)
        vectors = [members[i] for i in voters]
        shares = token_shares([tokens[i] for i in voters])
        clips = [fp32(clip) for clip in clip_factors([norms[i] for i in voters])]
        centre = _MEDIAN.reduce(vectors, [1] * len(voters), [norms[i] for i in voters])
        limit: float | None = None
        for _ in range(self.iterations):
            pairs = zip(vectors, clips, strict=True)
            distances = [math.sqrt(squared_distance(x, clip, centre)) for x, clip in pairs]
            if limit is None:
                limit = self.radius * median(distances)
            pulls = [s * (limit / d) if d > limit else s for s, d in zip(shares, distances, strict=True)]
            rest = 1.0
            for pull in pulls:  # sum() of floats compensates from Python 3.12 on: other bits
                rest -= pull
            weights = [fp32(pull * clip) for pull, clip in zip(pulls, clips, strict=True)]
            centre = weighted_sum([centre, *vectors], [fp32(max(0.0, rest)), *weights])
        return centre

    def owed(self, lost: Tensor, members: Sequence[Tensor], tokens: Sequence[int]) -> Tensor:
        return torch.zeros_like(lost)

    def longest(self, tokens: Sequence[int], norms: Sequence[float]) -> float:
        """Every iteration is a convex combination: no longer than the median it starts from or the longest member."""
        return max(_MEDIAN.longest(tokens, norms), *_clipped_norms(tokens, norms))


_MEDIAN = Trimmed(0.5)


def reduce_part(
    decoded: Sequence[Tensor | None], tokens: Sequence[int], norms: Sequence[float], rule: Rule = Mean()
) -> Tensor:
    """One part, fp32 `[n]`, of the members present, in the order given; None stands for an absent one.

    `decoded`: fp32 vectors `[n]`, finite; `tokens` and `norms` of all members, absent ones included. Raises ValueError
    when nobody is present, or as `mean_weights`.
    """
    present = [i for i, x in enumerate(decoded) if x is not None]
    members = [x for x in decoded if x is not None]
    if not len(decoded) == len(tokens) == len(norms):
        raise ValueError(f"{len(decoded)} members need as many token counts and norms, got {len(tokens)}, {len(norms)}")
    return rule.reduce(members, [tokens[i] for i in present], [norms[i] for i in present])


def _voters(tokens: Sequence[int]) -> list[int]:
    """Indices of those with tokens. Raises ValueError as `token_shares`."""
    return [i for i, share in enumerate(token_shares(tokens)) if share > 0.0]


def _clipped_norms(tokens: Sequence[int], norms: Sequence[float]) -> list[float]:
    voters = _voters(tokens)
    voting = [norms[i] for i in voters]
    return [clip * n for clip, n in zip(clip_factors(voting), voting, strict=True)]
