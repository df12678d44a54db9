"""The whole demo as a newcomer runs it: the most memory its processes hold at once, and how long it takes.

    python benchmarks/demo_memory.py

Memory is the sum of PSS (proportional set size: shared pages count once) over the demo and all its descendants,
orphans included, as the kernel gives it in smaps_rollup. The demo must also succeed: a failed one is no measurement.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import Figures, budget, descendants, main, say

from subnet.errors import UserError

MAX_PSS_GB = 8.0
MAX_MINUTES = 5.0
SHARE_OF_TIME = 0.05
"""Share of one core that looking may take: walking page tables of a swarm is work, and the demo wants the cores."""
MIN_PAUSE_SECONDS = 0.5
KILL_AFTER_SECONDS = 600.0
STOP_SECONDS = 40.0
_PR_SET_CHILD_SUBREAPER = 36


async def measure() -> tuple[bool, Figures]:
    """Run `sn38 demo` with its defaults and look at its processes until it ends."""
    # A descendant whose parent dies becomes this process's child, so none is missed.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="sn38-bench-") as folder:
        out = Path(folder) / "demo"
        started = time.monotonic()
        demo = subprocess.Popen(
            [sys.executable, "-m", "subnet.cli", "demo", "--out", str(out)], stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        try:
            peak, processes, looks = await _watch(demo, started)
        finally:
            if demo.poll() is None:
                demo.send_signal(signal.SIGTERM)
                demo.wait(STOP_SECONDS)
        minutes = (time.monotonic() - started) / 60
        summary = json.loads((out / "summary.json").read_text()) if (out / "summary.json").exists() else {}
    figures: Figures = {"peak_pss_gb": budget(peak, MAX_PSS_GB), "minutes": budget(minutes, MAX_MINUTES)}
    verdict = {
        "exit_code": demo.returncode,
        **{key: summary.get(key) for key in ("fall", "rounds", "free_rider_share", "digests_differing", "failures")},
    }
    ok = demo.returncode == 0 and all(f["ok"] for f in figures.values())
    return ok, {**figures, "processes_at_peak": processes, "looks": looks, "verdict": verdict}


async def _watch(demo: subprocess.Popen[bytes], started: float) -> tuple[float, int, int]:
    """The largest sum of PSS in GB, of how many processes it was, and how often it was looked at."""
    peak, processes, looks = 0.0, 0, 0
    while demo.poll() is None:
        before = time.monotonic()
        if before - started > KILL_AFTER_SECONDS:
            raise UserError(f"the demo did not end within {KILL_AFTER_SECONDS:.0f} s")
        sizes = [size for pid in descendants(os.getpid()) if (size := pss_bytes(pid))]
        looks += 1
        if sum(sizes) / 1e9 > peak:
            peak, processes = sum(sizes) / 1e9, len(sizes)
            say(f"[{before - started:5.0f} s] {peak:.2f} GB in {processes} processes")
        await asyncio.sleep(max(MIN_PAUSE_SECONDS, (time.monotonic() - before) / SHARE_OF_TIME))
    return peak, processes, looks


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    sys.exit(main(measure))
