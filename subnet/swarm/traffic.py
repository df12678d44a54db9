"""How many payload bytes went to and came from whom, how fast they could go, and token buckets that bound that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_RATE = 2**24
"""kB/s, 134 Gbit/s."""
UNKNOWN_RATE = 1
"""kB/s, of a peer that has not sent enough yet to know."""
_TELLING_BYTES = 8e6
_REMEMBERED_BYTES = 256e6


@dataclass
class Traffic:
    """Payload bytes by hotkey, sent (`up`) and received (`down`), since the start."""

    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)


class Upload:
    """What a link gives when it is asked for much: bytes sent by the seconds in which any were on their way.

    `now()` is in seconds. Idle time does not count, so a peer that is asked for little does not look slow.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sending = 0
        self._since = 0.0
        self._seconds = 0.0
        self._bytes = 0.0

    @contextmanager
    def sending(self) -> Iterator[Callable[[int], None]]:
        """While something is sent; what is given is told of the bytes that went."""
        if not self._sending:
            self._since = self._now()
        self._sending += 1
        try:
            yield self._sent
        finally:
            self._sending -= 1
            if not self._sending:
                self._seconds += self._now() - self._since
                if self._bytes > _REMEMBERED_BYTES:
                    self._bytes, self._seconds = self._bytes / 2, self._seconds / 2

    @property
    def rate(self) -> int:
        """kB/s, rounded down to a power of two so that it is the same for as long as it is about the same."""
        seconds = self._seconds + (self._now() - self._since if self._sending else 0.0)
        if self._bytes < _TELLING_BYTES or seconds <= 0.0:
            return UNKNOWN_RATE
        rate = int(self._bytes / seconds / 1000)
        return min(MAX_RATE, max(UNKNOWN_RATE, 1 << max(0, rate.bit_length() - 1)))

    def _sent(self, num_bytes: int) -> None:
        self._bytes += num_bytes


@dataclass
class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst` saved up. Time (seconds) is the caller's."""

    rate: float
    burst: float
    tokens: float
    filled: float

    @classmethod
    def full(cls, rate: float, burst: float, now: float) -> Bucket:
        return cls(rate, burst, burst, now)

    def take(self, amount: float, now: float) -> float:
        """Take tokens, going into debt if need be; returns the seconds until the debt is paid (0 if there is none)."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate) - amount
        self.filled = now
        return max(0.0, -self.tokens / self.rate)

    def allows(self, now: float) -> bool:
        """Take one token if there is one; an unpaid request costs nothing."""
        self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        self.filled = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True
