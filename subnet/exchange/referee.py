"""Who is right about a reduced part: it is made again from the contributions, and must come out the same.

Anyone who holds the committed bytes can do it, since the aggregate is exact. A wrong word is proven by two signed
records, the roster with its commitments and the word itself. Which parts are looked into without a dispute is drawn
from the hash of a block after the round, so a reducer cannot know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import PartResult, Read, reduce
from subnet.exchange.roster import Roster


def made_of(scheme: Scheme, roster: Roster, word: PartResult, members: Mapping[str, Read | None]) -> bool | None:
    """Whether the part a reducer signed for is what the contributions it names give.

    `members`: by hotkey, that part of each contribution, checked against its commitment. None when one that is needed
    is not there: nothing can be said.
    """
    named = [members.get(c.hotkey) if c.hotkey in word.included else None for c in roster.mean]
    if sum(read is not None for read in named) < len(word.included):
        return None
    return reduce(scheme, roster, word.part, named).root == word.root


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


def _number(beacon: bytes, part: int) -> int:
    digest = hashlib.blake2b(beacon + part.to_bytes(4, "big"), digest_size=8, person=b"sn38/audit").digest()
    return int.from_bytes(digest, "big")
