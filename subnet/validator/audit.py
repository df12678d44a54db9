"""Reduced parts made again from the contributions that a validator pulls for scoring anyway.

Some parts whole, which finds a lie in one element, and a few leaves of each of the others, which finds at once who
lies in much of its part. Which, follows from a block after the round (`referee`): nobody knows while it reduces.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from subnet.diloco.scheme import Scheme
from subnet.exchange.butterfly import Read, decoded
from subnet.exchange.referee import drawn, drawn_leaves, leaf_of, made_of
from subnet.exchange.round import Update

LEAVES = 2
"""Leaves looked into of every part that is not made again whole, under a rule that works element by element."""

Run = tuple[int, int]
"""Leaves `[start, stop)`."""


class Audit:
    """Of one round. It keeps, of each contribution, only what is looked into."""

    def __init__(self, scheme: Scheme, update: Update, beacon: bytes, rate: float) -> None:
        self.scheme = scheme
        self.update = update
        self._members = {c.hotkey for c in update.roster.mean}
        runs = update.roster.parts(scheme.layout)
        whole = drawn(beacon, len(runs), rate)
        gathered = update.results.keys() - {*whole, *update.missing} if scheme.rule.by_element else set()
        self._parts: dict[int, Run] = {part: runs[part] for part in whole}
        self._leaves = {part: drawn_leaves(beacon, part, *runs[part], LEAVES) for part in sorted(gathered)}
        looked_into = [*self._parts.values(), *((x, x + 1) for leaves in self._leaves.values() for x in leaves)]
        self._values: dict[Run, dict[str, Tensor]] = {run: {} for run in looked_into}

    def note(self, hotkey: str, delta: Tensor) -> None:
        """Take over what is needed of a contribution, fp32 of the layout's size."""
        if hotkey in self._members:
            for run, values in self._values.items():
                first, last = self.scheme.layout.span(*run)
                values[hotkey] = delta[first:last].clone()

    def wrong(self) -> set[str]:
        """The reducers whose signed word on a part is not what the contributions it names give."""
        return self._wrong_parts() | self._wrong_leaves()

    def _wrong_parts(self) -> set[str]:
        return {
            word.reducer
            for part, run in self._parts.items()
            for word in self.update.words.get(part, {}).values()
            if made_of(self.scheme, self.update.roster, word, self._members_of(run)) is False
        }

    def _wrong_leaves(self) -> set[str]:
        """Of whose word was followed, and so is in `delta`, and of those who signed for the same bytes."""
        found: set[str] = set()
        for part, leaves in self._leaves.items():
            followed = self.update.results[part]
            if any(self._differs(part, leaf) for leaf in leaves):
                words = self.update.words.get(part, {}).values()
                alike = {w.reducer for w in words if (w.root, w.included) == (followed.root, followed.included)}
                found |= {followed.reducer} | alike
        return found

    def _differs(self, part: int, leaf: int) -> bool:
        run = (leaf, leaf + 1)
        right = leaf_of(self.scheme, self.update.roster, self.update.results[part], leaf, self._members_of(run))
        first, last = self.scheme.layout.span(*run)
        return right is not None and not torch.equal(right, self.update.delta[first:last])

    def _members_of(self, run: Run) -> Mapping[str, Read]:
        return {hotkey: decoded(self.scheme.layout, x, run[0]) for hotkey, x in self._values[run].items()}
