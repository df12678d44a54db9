"""How many payload bytes went to and came from whom, and token buckets that bound how fast."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Payload bytes by hotkey, sent (`up`) and received (`down`), since the start."""

    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)


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
