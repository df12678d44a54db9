"""Reduced parts made again from the contributions that a validator pulls for scoring anyway.

Which parts are looked into follows from a block after the round (`referee.drawn`): nobody knows while it reduces.
"""

from __future__ import annotations

from torch import Tensor

from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import Read, decoded
from subnet.exchange.referee import drawn, made_of
from subnet.exchange.round import Update


class Audit:
    """Of one round. It keeps, of each contribution, only the parts that are looked into."""

    def __init__(self, scheme: Scheme, update: Update, beacon: bytes, rate: float) -> None:
        self.scheme = scheme
        self.update = update
        self._runs = update.roster.parts(scheme.layout)
        self._members = {c.hotkey for c in update.roster.mean}
        self._values: dict[int, dict[str, Tensor]] = {part: {} for part in drawn(beacon, len(self._runs), rate)}

    def note(self, hotkey: str, delta: Tensor) -> None:
        """Take over what is needed of a contribution, fp32 of the layout's size."""
        if hotkey in self._members:
            for part, values in self._values.items():
                first, last = self.scheme.layout.span(*self._runs[part])
                values[hotkey] = delta[first:last].clone()

    def wrong(self) -> set[str]:
        """The reducers whose signed word on a part is not what the contributions it names give."""
        return {
            word.reducer
            for part, values in self._values.items()
            for word in self.update.words.get(part, {}).values()
            if made_of(self.scheme, self.update.roster, word, self._members_of(part, values)) is False
        }

    def _members_of(self, part: int, values: dict[str, Tensor]) -> dict[str, Read]:
        start, _ = self._runs[part]
        return {hotkey: decoded(self.scheme.layout, x, start) for hotkey, x in values.items()}
