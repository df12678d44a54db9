"""What a neuron tells the outside: one JSON line an event in its home folder, and Weights & Biases if wanted.

`metrics.jsonl` is append-only and flushed line by line, so that a killed neuron leaves whole lines. wandb is a mirror
of it: never needed, never waited for, and off with one flag.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"


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
