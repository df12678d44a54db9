"""Who sent nearly the same as another: contributions compared by a sketch, a few thousand of their elements.

Not proof of theft: contributions are committed to before any can be read, so near-copies of one round have one owner.
The reference is the round itself, since honest pseudo-gradients have much in common (cosine up to 0.95 early on).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

SKETCH = 2**15
"""Elements in a sketch: the sampling error of a cosine is 0.6 % (dense codecs), and 256 sketches are 32 MB."""

_SAME = 0.985
"""A cosine that honest peers stay below, without taking anything out: where copies are the majority, what the others
have in common is the copied one itself."""
ALIKE = (_SAME, 0.93, 0.88, 0.85, 0.82)
"""Partial correlations that honest pairs stay below, by how many others trained about as much: without any, nobody can
tell what such training has in common. The last is for all above."""
_AS_MUCH = 0.75
"""Steps of another, against those of the pair's lesser, from which on it trained about as much."""
_ALIKE_MOST = 0.95
_TELLING = 0.01
"""Share of a sketch's squared length that must be left for its correlation to say anything. Who sends the mean of all
others, or its opposite, is like all and like none: it must not make them near-copies of each other."""
_KNOWN = 0.12
"""A contribution whose unexplained share is below this part of the round's median is last round's news."""

Sketch = NDArray[np.float32]
Sketches = NDArray[np.float32]


def coordinates(secret: bytes, numel: int, size: int = SKETCH) -> NDArray[np.int64]:
    """int64 [min(size, numel)], sorted and distinct: which elements of `numel` are compared.

    Drawn from a secret of the validator's, one for all rounds, since contributions of two rounds are compared: from a
    public seed, whoever copies would know which few elements to spoil.
    """
    if size >= numel:
        return np.arange(numel, dtype=np.int64)
    seed = int.from_bytes(hashlib.blake2b(secret, digest_size=16, person=b"sn38/sketch").digest(), "big")
    return np.sort(np.random.default_rng(seed).choice(numel, size, replace=False, shuffle=False)).astype(np.int64)


def cosines(sketches: Sketches) -> NDArray[np.float64]:
    """float64 [n, n]: the cosine of each pair; 0 for a zero sketch, with itself as well."""
    x = sketches.astype(np.float64)
    length = np.sqrt((x * x).sum(1))
    unit = np.divide(x, length[:, None], out=np.zeros_like(x), where=length[:, None] > 0)
    return np.asarray(unit @ unit.T)


def partial_correlations(sketches: Sketches, steps: Sequence[float]) -> NDArray[np.float64]:
    """float64 [n, n]: the cosine of each pair once what the others have in common is taken out of both.

    That is two directions: the sum of the other n - 2 unit vectors, and their sum weighted by the inner `steps` that
    each declared, since those who stop early have something in common as well. 0 for a zero sketch. Calibrated on
    honest peers with a quarter to all of the steps: at most 0.77 among five or more, 0.92 among three
    (docs/scoring.md). Of an exact or scaled copy it is 1, of one with noise of a quarter of its size 0.75 to 0.97.
    """
    c = cosines(sketches)
    w = np.stack([np.ones(len(c)), np.asarray(steps, dtype=np.float64) / max(steps)])
    own = np.diag(c)
    along = w @ c  # [2, n]: each with the weighted sums of all
    # Towards the sums over the others of a pair: [2, n, n], the first index of the pair is who looks.
    towards = along[:, :, None] - (w * own)[:, :, None] - w[:, None, :] * c[None]
    both = w @ c @ w.T
    # Gram matrix of the two sums over the others: all, less what the pair has to do with it; [n, n, 2, 2].
    less = np.einsum("ai,bi->iab", w, along)
    less = less + less.transpose(0, 2, 1)
    pair = np.einsum("ai,bj->ijab", w, w)
    square = np.einsum("ai,bi,i->iab", w, w, own)
    gram = (
        both - less[:, None] - less[None] + square[:, None] + square[None]
        + c[:, :, None, None] * (pair + pair.transpose(0, 1, 3, 2))
    )  # fmt: skip
    inverse = np.linalg.pinv(gram, rcond=1e-6, hermitian=True)
    rest = c - np.einsum("aij,ijab,bji->ij", towards, inverse, towards)
    left = own[:, None] - np.einsum("aij,ijab,bij->ij", towards, inverse, towards)
    telling = np.minimum(left, left.T) >= _TELLING
    lengths = np.sqrt(np.where(telling, left * left.T, 1.0))
    return np.asarray(np.where(telling, np.clip(rest / lengths, -1.0, 1.0), 0.0))


def groups(sketches: Sketches, steps: Sequence[float]) -> list[frozenset[int]]:
    """Rows that are near-copies of each other, in groups of two and more: the connected ones by absolute partial
    correlation above what honest peers reach, and above halfway from the round's upper quartile to 1; or by a cosine
    that is all but 1.

    Scale, sign and order do not matter. When some are found, what is common is taken again, with each group as one, so
    that a crowd of copies does not pass for it.
    """
    found: list[list[int]] = [[i] for i in range(len(sketches))]
    while len(found) > 1:
        each = np.stack([_mean(sketches[members]) for members in found])
        linked = _linked(each, [float(np.mean([steps[i] for i in members])) for members in found])
        if not linked.any():
            break
        found = _joined(found, linked)
    return [frozenset(members) for members in found if len(members) > 1]


def unexplained(sketches: Sketches, earlier: Sketches) -> NDArray[np.float64]:
    """float64 [n], 0..1: each sketch's share of its squared length outside the span of the `earlier` ones, at most a
    few hundred. 1 without any, and for zeros."""
    x, e = sketches.astype(np.float64), earlier.astype(np.float64)
    length = (x * x).sum(1)
    share = np.ones(len(x))
    if not len(e) or not len(x):
        return share
    values, vectors = np.linalg.eigh(e @ e.T)
    kept = values > 1e-10 * max(float(values[-1]), 1e-300)
    inside = ((x @ e.T @ vectors[:, kept]) ** 2 / values[kept]).sum(1)
    return np.clip(1.0 - np.divide(inside, length, out=np.zeros_like(length), where=length > 0), 0.0, 1.0)


def stale(now: Mapping[str, Sketch], earlier: Mapping[str, Sketch], helpful: set[str]) -> set[str]:
    """Hotkeys whose contribution is made of what others sent in the last round: a copy, or a mix of any number.

    Its `unexplained` share is small beside the round's reference: the upper median of the shares of those that were
    `helpful` now, since noise is all new and must not set it. Of honest peers it is a fifth in the first rounds and
    nine tenths later. What somebody sent itself may come again: what a round could not carry is still owed.
    """
    if not now or not earlier:
        return set()
    hotkeys = sorted(now)
    last = np.stack([earlier[hotkey] for hotkey in sorted(earlier)])
    shares = dict(zip(hotkeys, unexplained(np.stack([now[h] for h in hotkeys]), last).tolist(), strict=True))
    ordered = sorted(share for hotkey, share in shares.items() if hotkey in helpful)
    if not ordered:
        return set()
    limit = _KNOWN * ordered[len(ordered) // 2]
    found = set()
    for hotkey, share in shares.items():
        if share < limit:
            others = [sketch for owner, sketch in sorted(earlier.items()) if owner != hotkey]
            if others and unexplained(now[hotkey][None], np.stack(others))[0] < limit:
                found.add(hotkey)
    return found


def _linked(sketches: Sketches, steps: Sequence[float]) -> NDArray[np.bool_]:
    n = len(sketches)
    partial = np.abs(partial_correlations(sketches, steps))
    halfway = (1.0 + float(np.quantile(partial[np.triu_indices(n, 1)], 0.75))) / 2
    declared = np.asarray(steps, dtype=np.float64)
    lesser = np.minimum(declared[:, None], declared[None])
    peers = (declared >= _AS_MUCH * lesser[:, :, None]).sum(2) - 2  # the pair itself is among them
    alike = np.asarray(ALIKE)[np.minimum(peers, len(ALIKE) - 1)]
    linked: NDArray[np.bool_] = partial > np.maximum(min(_ALIKE_MOST, halfway), alike)
    linked |= np.abs(cosines(sketches)) > _SAME
    np.fill_diagonal(linked, False)
    return linked


def _joined(found: list[list[int]], linked: NDArray[np.bool_]) -> list[list[int]]:
    left = set(range(len(found)))
    joined = []
    while left:
        reached, front = set(), {min(left)}
        while front:
            reached |= front
            front = {int(j) for i in front for j in np.flatnonzero(linked[i])} - reached
        left -= reached
        joined.append(sorted(member for i in reached for member in found[i]))
    return joined


def _mean(sketches: Sketches) -> NDArray[np.float32]:
    """The mean direction of near-copies, each turned to the first one's side."""
    length = np.sqrt((sketches.astype(np.float64) ** 2).sum(1))
    unit = np.divide(sketches, length[:, None], out=np.zeros_like(sketches), where=length[:, None] > 0)
    sides = np.where(unit @ unit[0] < 0, -1.0, 1.0)
    return np.asarray((unit * sides[:, None]).mean(0), dtype=np.float32)
