"""What peers sent that was refused, or did not send: counted by sender, and said once per sender and round."""

from __future__ import annotations

import logging
from collections import Counter

from subnet.exchange.window import Window
from subnet.swarm.blobs import FetchError

log = logging.getLogger(__name__)

MAX_COUNTED = 4096
"""Pairs of sender and reason that are counted apart."""


class Refusals:
    """`counted`, by (hotkey, reason)."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, str]] = Counter()
        self._told: set[tuple[int, str]] = set()

    def drop(self, window: Window, hotkey: str, error: Exception) -> None:
        """Count that something of this hotkey was not used, and why."""
        reason = "not delivered" if isinstance(error, FetchError) else str(error)
        if len(self.counted) < MAX_COUNTED or (hotkey, reason) in self.counted:
            self.counted[hotkey, reason] += 1
        if (window.round, hotkey) not in self._told:
            self._told = {told for told in self._told if told[0] >= window.round - 1} | {(window.round, hotkey)}
            log.warning("round %d: dropped a message of %s: %s", window.round, hotkey, error)
