"""Children that die with the neuron, one neuron per state folder, and nothing left over from one that was killed.

The kernel does it on Linux (parent-death signal, prctl(2)); elsewhere a thread watches the parent, and the next start
in the same folder ends what is left.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from subnet.errors import UserError
from subnet.swarm.lock import FileLock, Taken

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5
_KILL_SECONDS = 3.0
_LIBC = ctypes.CDLL(None, use_errno=True)


class HomeClaim:
    """This process's sole use of a state folder, with what must be cleaned up if it is killed.

    `sockets` is a private folder for the control sockets of the libp2p daemon, which has no other protection.
    """

    def __init__(self, home: Path) -> None:
        """Raises UserError when another neuron uses `home` or it cannot be written."""
        self._state = home / "swarm.json"
        try:
            self._lock = FileLock(home / "swarm.lock")
        except Taken as error:
            raise UserError(
                f"another neuron uses the state folder {home}; stop it, or, for another hotkey, give another --home"
            ) from error
        except OSError as error:
            why = error.strerror
            raise UserError(f"{home} cannot be used as the state folder: {why}; give another --home") from error
        _clean_up(self._state)
        self.sockets = Path(tempfile.mkdtemp(prefix="sn38-"))
        self.note()

    def note(self, dht: int = 0, p2pd: int = 0) -> None:
        """Write down the children's process ids for whoever has to clean up."""
        state = {"pid": os.getpid(), "dht": dht, "p2pd": p2pd, "sockets": str(self.sockets)}
        draft = self._state.with_suffix(".tmp")
        draft.write_text(json.dumps(state))
        draft.replace(self._state)

    def release(self) -> None:
        """End whatever child is left, remove the sockets, and let another neuron have the folder."""
        _clean_up(self._state)
        self._lock.release()


def die_with_parent(parent: int, last_words: Callable[[], None]) -> None:
    """Called in a forked child: be killed when process `parent` ends, by whatever cause.

    Where the kernel does not offer it, a thread looks every half second, runs `last_words` and exits.
    """
    if sys.platform == "linux":
        _kill_me_with_parent()
        if os.getppid() != parent:
            os._exit(1)
    else:
        threading.Thread(target=watch_parent, args=(parent, last_words), name="parent-watch", daemon=True).start()


def watch_parent(parent: int, last_words: Callable[[], None]) -> None:
    """Block until `parent` is no longer this process's parent, then run `last_words` and exit."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    last_words()
    os._exit(1)


def forget_parent_signals() -> None:
    """Called in a forked child: leave Ctrl-C to the parent, die of SIGTERM, and do not write to its wake-up pipe."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def leash_subprocesses() -> None:
    """Make every program that asyncio starts in this process from now on die with it, in a session of its own.

    hivemind gives no hook at the place where it starts the libp2p daemon. The session keeps a Ctrl-C in the terminal
    away from the daemon, which the neuron still needs to say goodbye.
    """
    start = asyncio.subprocess.create_subprocess_exec
    hook = _kill_me_with_parent if sys.platform == "linux" else None
    asyncio.subprocess.create_subprocess_exec = functools.partial(start, preexec_fn=hook, start_new_session=True)


def kill_and_wait(pid: int, seconds: float = _KILL_SECONDS) -> None:
    """SIGKILL a process and wait until it is gone, at most `seconds`."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    limit = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < limit:
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process with this id exists (one that ended and was not waited for does not count)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _command(pid).startswith("(zombie)")


def _kill_me_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _clean_up(state_file: Path) -> None:
    """End the libp2p daemon and remove the sockets and shared memory that the state file names, and the file itself."""
    try:
        state = json.loads(state_file.read_text())
        owner, dht, p2pd = (int(state[key]) for key in ("pid", "dht", "p2pd"))
        sockets = Path(state["sockets"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    # The id may be somebody else's by now: only the daemon that listens in this folder is ours.
    if p2pd and f"/unix{sockets}/" in _command(p2pd):
        kill_and_wait(p2pd)
    if sockets.name.startswith("sn38-") and not sockets.is_symlink():
        shutil.rmtree(sockets, ignore_errors=True)
    for pid in {owner, dht} - {0, os.getpid()}:
        if not is_running(pid):
            for segment in Path("/dev/shm").glob(f"torch_{pid}_*"):
                segment.unlink(missing_ok=True)
    state_file.unlink(missing_ok=True)


def _command(pid: int) -> str:
    """The command line of a process; "(zombie)" for one that ended; "" if there is none."""
    if sys.platform == "linux":
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            return ""
        return "(zombie)" if state in "ZX" else command.decode(errors="replace")
    query = ["ps", "-ww", "-o", "state=,command=", "-p", str(pid)]
    state, _, command = subprocess.run(query, capture_output=True, text=True, timeout=5).stdout.strip().partition(" ")
    return "(zombie)" if state.startswith("Z") else command
