"""What a neuron tells the outside: one JSON line an event in its home folder, Weights & Biases if wanted, log lines.

`metrics.jsonl` is append-only and flushed line by line, so that a killed neuron leaves whole lines. wandb is a mirror
of it: never needed, never waited for, and off with one flag.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
PROGRESS_SECONDS = 1.0
"""Shortest time between two lines of one piece of work."""


class Telemetry:
    """Appends events to `home/metrics.jsonl`; numeric values of ``round`` events also go to wandb."""

    def __init__(
        self, home: Path, role: str, hotkey: str, wandb_mode: str, run_name: str, now: Callable[[], float] = time.time
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._file = (home / METRICS_FILE).open("a", encoding="utf-8", buffering=1)
        self._now = now
        self._common = {"role": role, "hotkey": hotkey}
        self._wandb = _start_wandb(home, role, hotkey, wandb_mode, run_name) if wandb_mode != "disabled" else None

    def event(self, name: str, **values: Any) -> None:
        """Write one event; values must be JSON."""
        line = {"time": round(self._now(), 3), "event": name, **self._common, **values}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        if self._wandb is not None and name == "round":
            self._wandb.log({k: v for k, v in values.items() if isinstance(v, int | float)})

    def close(self) -> None:
        """Close the file and finish the wandb run, if any."""
        self._file.close()
        if self._wandb is not None:
            self._wandb.finish()


class Progress:
    """Tells of long work, `say(done, total)`, at most once a second, and once when it is done."""

    def __init__(self, say: Callable[[int, int], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._next = -math.inf
        self._finished = False

    def __call__(self, done: int, total: int) -> None:
        """So much of `total` is done."""
        now, finished = self._now(), done >= total
        if (finished and not self._finished) or (not finished and now >= self._next):
            self._next = now + PROGRESS_SECONDS
            self._finished = finished
            self._say(done, total)


def size(num_bytes: float) -> str:
    """Bytes for people: 1,234,567 is "1.2 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.0f} {unit}" if unit == "B" or num_bytes >= 99.95 else f"{num_bytes:.1f} {unit}"


def _start_wandb(home: Path, role: str, hotkey: str, mode: str, run_name: str) -> Any:
    try:
        import wandb
    except ImportError:
        log.info("wandb is not installed; metrics stay in %s", home / METRICS_FILE)
        return None
    return wandb.init(
        project="sn38",
        name=f"{role}-{hotkey[:8]}",
        group=run_name,
        dir=str(home),
        mode=cast(Literal["online", "offline"], mode),
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
    )
