"""The processes of a chaos run: which are its own, how large they are, and what they leave behind. Linux only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

TOKEN = "SN38_CHAOS"
"""Environment variable that every process of a run inherits: whose it is shows even when its parent has died."""
LEFT_FILE = "left.json"
"""What a peer that left in good order still held: unfinished tasks."""
_FIRST_ROUNDS = 10
_SERVERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")

Size = tuple[int, int, int]
"""Round, bytes, open files."""


def ours(pid: int) -> bool:
    """Whether a process belongs to this run and has not ended."""
    try:
        marked = f"{TOKEN}={os.environ[TOKEN]}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return marked and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def signal_to(pid: int | None, number: signal.Signals) -> None:
    """Send a signal to one of our own processes; nothing if it has gone."""
    if pid is not None and ours(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def size_of(pids: Iterable[int]) -> tuple[int, int]:
    """Memory in bytes and open files of some processes. Raises OSError if one has ended.

    Only pages that no other process has: shares of the others change with the number of peers that were forked.
    """
    kilobytes, files = 0, 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        files += len(os.listdir(f"/proc/{pid}/fd"))
    return 1024 * kilobytes, files


def growth(lives: Sequence[Sequence[Size]]) -> dict[str, Any]:
    """How memory and open files went on after the first rounds of the long lives, in means over their rounds."""
    long = [sizes[_FIRST_ROUNDS:] for sizes in lives if len(sizes) > 2 * _FIRST_ROUNDS]
    rounds = sum(sizes[-1][0] - sizes[0][0] for sizes in long)
    if not rounds:
        return {"rounds": 0, "mb_a_round": 0.0, "files_a_round": 0.0}
    memory = sum(sizes[-1][1] - sizes[0][1] for sizes in long) / 1e6
    files = sum(sizes[-1][2] - sizes[0][2] for sizes in long)
    return {"rounds": rounds, "mb_a_round": round(memory / rounds, 3), "files_a_round": round(files / rounds, 3)}


def leftovers(folder: Path, homes: Sequence[Path], pids: Collection[int], began: float) -> dict[str, list[str]]:
    """What should not be there any more when all peers have left.

    Processes, control sockets in `folder`, shared memory made since the Unix time `began` by the processes `pids` (an
    id may have been somebody else's before), half-written checkpoints, and tasks of the peers with these `homes`.
    """
    processes, forkers = [], 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid() or not ours(int(entry.name)):
            continue
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        forkers += _SERVERS[0] in command
        if not any(name in command for name in _SERVERS):
            processes.append(command)
    processes += ["a peer"] * max(0, forkers - 1)  # they look like the one they were forked from
    tasks: list[str] = []
    for home in homes:
        file = home / LEFT_FILE
        tasks += json.loads(file.read_text()) if file.exists() else [f"{home.name} did not leave in good order"]
    return {
        "processes": processes,
        "sockets": [str(file) for file in (folder / "tmp").glob("sn38-*")],
        "shared_memory": [str(file) for pid in pids for file in _shared(pid) if file.stat().st_mtime >= began],
        "unfinished": [str(file) for home in homes for file in home.glob("checkpoints/.unfinished-*")],
        "tasks": tasks,
    }


def _shared(pid: int) -> Iterable[Path]:
    return Path("/dev/shm").glob(f"torch_{pid}_*")
