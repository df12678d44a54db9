"""The loss score of one contribution: what a small step along it does to the loss.

Not the model's evaluation itself (the validator holds the model) and not a verdict over time (see `table`).
From Gauntlet (arXiv:2505.21684, section 3): compare the drop on assigned data with the drop on unseen data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


class _Tensor(Protocol):
    @property
    def shape(self) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...


Vector = TypeVar("Vector", bound=_Tensor)


@dataclass(frozen=True)
class LossScore:
    """Loss drops of one contribution in nats per token, positive when the contribution helps.

    `own`: mean drop on a sample of the peer's assigned data; `held_out`: mean drop on data no peer was assigned.
    `own_se`, `held_out_se`: their standard errors. -inf is a drop that could not be measured because the loss
    afterwards was not finite; an infinite standard error belongs to a single sample.
    `excess`, `excess_se`: by how much the own samples drop further than the round's common update lets expect (see
    `excess`); an infinite standard error where there is nothing to compare with.
    """

    own: float
    own_se: float
    held_out: float
    held_out_se: float
    excess: float = 0.0
    excess_se: float = math.inf

    def __post_init__(self) -> None:
        for name in ("own", "held_out"):
            value, error = getattr(self, name), getattr(self, f"{name}_se")
            if math.isnan(value) or value == math.inf:
                raise ValueError(f"{name} must be a finite loss drop or -inf, got {value}")
            if math.isnan(error) or error < 0:
                raise ValueError(f"{name}_se must be a standard error of at least 0, got {error}")
        if not math.isfinite(self.excess):
            raise ValueError(f"excess must be finite, got {self.excess}")
        if math.isnan(self.excess_se) or self.excess_se < 0:
            raise ValueError(f"excess_se must be a standard error of at least 0, got {self.excess_se}")

    def evident(self, z: float) -> bool:
        """Whether this round shows work, at `z` standard errors:

        held_out > z * held_out_se                                 it helped on data nobody was given, and
        own >= held_out - z * sqrt(own_se^2 + held_out_se^2)       its own data does not stand out as untrained.

        The second only where there is no `excess`, which tells the same much more surely and over rounds (`trained`).
        Zeros (a drop of exactly 0) never pass; pure noise passes with the one-sided tail of `z` (16 % at z = 1),
        with drops too small to be worth much.
        """
        if not self.held_out > z * self.held_out_se:
            return False
        if math.isfinite(self.excess_se):
            return True
        return self.own >= self.held_out - z * math.hypot(self.own_se, self.held_out_se)


def paired(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard error of the per-sample loss drops `before - after`.

    `before`, `after`: float64[samples], nats per token, the same samples in the same order. Pairing removes the
    spread between easy and hard samples, which is far larger than any drop. A non-finite loss afterwards gives
    (-inf, 0): it ranks last. One sample gives an infinite standard error: it proves nothing.
    Raises ValueError on unequal or empty shapes and on a non-finite baseline, which no contribution can cause.
    """
    before, after = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if before.ndim != 1 or before.shape != after.shape or not before.size:
        raise ValueError(f"need two equal, non-empty rows of losses, got shapes {before.shape} and {after.shape}")
    if not np.isfinite(before).all():
        raise ValueError("the baseline loss is not finite: the state itself is broken, not a contribution")
    if not np.isfinite(after).all():
        return -math.inf, 0.0
    drops = before - after
    if drops.size == 1:
        return float(drops[0]), math.inf
    return float(drops.mean()), float(drops.std(ddof=1) / math.sqrt(drops.size))


def excess(
    own: NDArray[np.float64],
    held_out: NDArray[np.float64],
    common_own: NDArray[np.float64],
    common_held_out: NDArray[np.float64],
) -> tuple[float, float]:
    """How much further a contribution's own samples drop than others' work explains, and its standard error; nats a
    token. 0 in the mean for whoever did not train on them.

    Rows of drops per sample, float64: of the contribution on its own and on held-out samples, and of the round's common
    update on the same samples. How learnable a sample is shows in both, so that

        e_s = (own_s - mean(held_out)) - k (common_own_s - mean(common_held_out)),   k = mean(held_out) / mean(common..)

    leaves what only training on the sample itself gives: on a 1 M parameter model 2 to 9 standard errors at 16 samples,
    where the plain difference of means has 0.7 to 4. k is kept within 0..2. The common update holds the contribution
    itself with its share 1/n, which takes as much off the excess, of everybody alike.
    """
    if not (np.isfinite(own).all() and np.isfinite(held_out).all()) or own.size < 2 or held_out.size < 2:
        return 0.0, math.inf
    scale = float(common_held_out.mean())
    k = min(2.0, max(0.0, float(held_out.mean()) / scale)) if scale > 0 else 1.0
    e = (own - held_out.mean()) - k * (common_own - common_held_out.mean())
    rest = held_out - k * common_held_out
    error = math.hypot(e.std(ddof=1) / math.sqrt(e.size), rest.std(ddof=1) / math.sqrt(rest.size))
    return float(e.mean()), error


def plausible(norms: Sequence[float], steps: Sequence[int]) -> list[float]:
    """Factor in 0..1 for each contribution that shortens it to a length its declared inner steps make plausible.

        min(1, max(median norm, steps_i * median(norm / steps)) / norm_i)        medians over the norms above 0

    Whoever scales its contribution up gains nothing by it. The plain clip at the median norm, as the mean has it, would
    take the work of those who train more than most from them: a pseudo-gradient grows with its steps, between their
    square root and in proportion.
    """
    real = [(norm, count) for norm, count in zip(norms, steps, strict=True) if norm > 0]
    if not real:
        return [1.0] * len(norms)
    middle, rate = median(norm for norm, _ in real), median(norm / count for norm, count in real)
    return [
        min(1.0, max(middle, rate * count) / norm) if norm > 0 else 1.0
        for norm, count in zip(norms, steps, strict=True)
    ]


def apply_fraction(theta: Vector, delta: Vector, factor: float) -> Vector:
    """theta - factor * delta: a small step along one pseudo-gradient (start minus end of the inner loop).

    `theta`, `delta`: flat fp32 vectors of equal shape, numpy or torch; neither is changed. Gauntlet steps by a
    fraction of the outer learning rate, so that a contribution is judged where the loss is still near linear.
    Pass `eval_lr` times what `plausible` gives, or a peer gains by scaling its contribution up.
    Raises ValueError when the shapes differ (broadcasting would hide it).
    """
    if theta.shape != delta.shape:
        raise ValueError(f"theta {tuple(theta.shape)} and delta {tuple(delta.shape)} differ in shape")
    return theta - factor * delta
