"""Who is right about a reduced part: it, or a leaf of it, is made again from the contributions and must come out alike.

Anyone who holds the committed bytes can do it, since the aggregate is exact. A wrong word is proven by two signed
records, the roster with its commitments and the word itself. Which parts and leaves are looked into without a dispute
is drawn from the hash of a block after the round, so a reducer cannot know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from torch import Tensor

from subnet.diloco.codec import decode_part
from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import PartResult, Read, reduce, reduced_window
from subnet.exchange.roster import Roster


def made_of(scheme: Scheme, roster: Roster, word: PartResult, members: Mapping[str, Read | None]) -> bool | None:
    """Whether the part a reducer signed for is what the contributions it names give.

    `members`: by hotkey, that part of each contribution, checked against its commitment. None when one that is needed
    is not there: nothing can be said.
    """
    named = _named(roster, word, members)
    return None if named is None else reduce(scheme, roster, word.part, named).root == word.root


def leaf_of(
    scheme: Scheme, roster: Roster, word: PartResult, leaf: int, members: Mapping[str, Read | None]
) -> Tensor | None:
    """What a leaf of a reduced part decodes to, fp32, if it is what the contributions that the word names give.

    Only where the rule makes an element of that element alone (`scheme.rule.by_element`). `members`: by hotkey, that
    leaf of each contribution. None when one that is needed is not there.
    """
    named = _named(roster, word, members)
    if named is None:
        return None
    leaves, _ = reduced_window(scheme, roster, leaf, leaf + 1, named)
    return decode_part(scheme.reduced, scheme.layout, leaves, leaf, leaf + 1)


def _named(roster: Roster, word: PartResult, members: Mapping[str, Read | None]) -> list[Read | None] | None:
    """Of the averaged members, in roster order, those that the word names; None if one of them is not there."""
    named = [members.get(c.hotkey) if c.hotkey in word.included else None for c in roster.mean]
    return named if sum(read is not None for read in named) == len(word.included) else None


def ranked(words: Sequence[PartResult], verdicts: Mapping[str, bool | None]) -> list[PartResult]:
    """Words on one part in the order to follow: proven first, most members first; those proven wrong are left out.

    Equal ones keep the order of their reducers.
    """
    kept = [w for w in words if verdicts[w.reducer] is not False]
    return sorted(kept, key=lambda w: (verdicts[w.reducer] is None, -len(w.included)))


def drawn(beacon: bytes, parts: int, rate: float) -> list[int]:
    """The parts to look into: each with probability `rate`, by blake2b of `beacon` and its index."""
    limit = int(rate * 2**64)
    return [part for part in range(parts) if _number(beacon, part) < limit]


def drawn_leaves(beacon: bytes, part: int, start: int, stop: int, count: int) -> list[int]:
    """Of the part's leaves `[start, stop)` those to look into, ascending: `count` draws, which may be alike."""
    return sorted({start + _number(beacon, part, draw) % (stop - start) for draw in range(count)})


def _number(beacon: bytes, *what: int) -> int:
    message = beacon + b"".join(number.to_bytes(4, "big") for number in what)
    return int.from_bytes(hashlib.blake2b(message, digest_size=8, person=b"sn38/audit").digest(), "big")
