"""How many payload bytes went to and came from whom, how fast they could go, and token buckets that bound that."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate

MAX_RATE = 2**24
"""kB/s, 134 Gbit/s."""
UNKNOWN_RATE = 1
"""Of a peer that has not sent enough yet to know."""
_TELLING_BYTES = 8e6
_REMEMBERED_BYTES = 64e6
_WINDOW_SECONDS = 0.5
_MAX_WINDOWS = 1024
_SETTLE_SECONDS = 0.1
"""Added to every time in which something is sent: the last of it is in buffers by then, and not there yet."""


@dataclass
class Traffic:
    """Payload bytes by hotkey, sent (`up`) and received (`down`), since the start."""

    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)


class Upload:
    """What a link gives when it is asked for much: half of the last bytes went at `rate` or faster.

    Only seconds count in which something is sent, so a peer that is asked for little does not look slow; and by bytes,
    not by seconds, or a single receiver that is slow to take what it asked for would make everybody look as slow as
    itself. `now()` is in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sending = 0
        self._since = 0.0
        self._seconds = 0.0
        self._bytes = 0
        self._windows: deque[tuple[float, int]] = deque(maxlen=_MAX_WINDOWS)

    @contextmanager
    def sending(self) -> Iterator[Callable[[int], None]]:
        """While something is sent; what is given is told of the bytes that go."""
        if not self._sending:
            self._since = self._now()
        self._sending += 1
        try:
            yield self._sent
        finally:
            self._sending -= 1
            if not self._sending:
                self._pass_time(_SETTLE_SECONDS)

    @property
    def rate(self) -> int:
        """kB/s, rounded down to three binary digits, from 2 on; UNKNOWN_RATE before it is known."""
        windows = sorted(self._windows, reverse=True)
        passed = list(accumulate(size for _, size in windows))
        if not passed or passed[-1] < _TELLING_BYTES:
            return UNKNOWN_RATE
        return quantised(int(windows[bisect_left(passed, passed[-1] / 2)][0] / 1000))

    def _sent(self, num_bytes: int) -> None:
        self._bytes += num_bytes
        self._pass_time(0.0)

    def _pass_time(self, settling: float) -> None:
        now = self._now()
        self._seconds += now - self._since + settling
        self._since = now
        if self._seconds >= _WINDOW_SECONDS:
            self._windows.append((self._bytes / self._seconds, self._bytes))
            self._bytes, self._seconds = 0, 0.0
            while sum(size for _, size in self._windows) - self._windows[0][1] > _REMEMBERED_BYTES:
                self._windows.popleft()


def quantised(rate: int) -> int:
    """A measured rate, kB/s, as it is declared: three binary digits, so that it tells little of what a peer does."""
    digits = max(0, rate.bit_length() - 3)
    return min(MAX_RATE, max(UNKNOWN_RATE + 1, rate >> digits << digits))


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
