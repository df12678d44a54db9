"""Advisory locks in files, held by one process until it lets go or dies: whose a state folder is, and whose a hotkey.

The kernel releases them at death (flock(2)), so nothing stale is ever left. Nobody waits for one: it is free or taken.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path

from subnet.errors import UserError

_MAX_NOTE = 4096
_held: set[int] = set()


class Taken(Exception):
    """Another process holds the lock; the message is what it wrote down for whoever finds it taken."""


class FileLock:
    """A lock on `path`, which is created; `note` is for others to read.

    Raises:
        Taken: another process holds it.
        OSError: the file cannot be made or written.
    """

    def __init__(self, path: Path, note: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Taken(os.pread(self._file, _MAX_NOTE, 0).decode(errors="replace")) from error
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, note.encode()[:_MAX_NOTE], 0)
        except BaseException:
            os.close(self._file)
            raise
        _held.add(self._file)

    def release(self) -> None:
        """Let another process have it. Idempotent."""
        if self._file in _held:
            _held.discard(self._file)
            # Closing alone would leave it locked by a child that was forked at this very moment.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)


def claim_hotkey(folder: Path, hotkey: str, netuid: int, chain: bytes, home: Path) -> FileLock:
    """This process's sole use of a hotkey in subnet `netuid` of a chain (named by a hash of its own), on this machine.

    `folder` is shared by all neurons of a user; `home` is the state folder, for whoever finds the hotkey taken.

    Raises:
        UserError: another process runs it, or `folder` cannot be written.
    """
    path = folder / "running" / f"{hotkey}-{netuid}-{chain.hex()[:16]}.lock"
    try:
        return FileLock(path, json.dumps({"pid": os.getpid(), "home": str(home)}))
    except Taken as taken:
        raise UserError(
            f"hotkey {hotkey} is already running{_where(str(taken))}; a hotkey may run once: stop the other"
        ) from taken
    except OSError as error:
        why = f"{path} cannot be written: {error.strerror}"
        raise UserError(f"{why}; mend that, or set HOME to a folder that can be written") from error


def _where(note: str) -> str:
    with suppress(ValueError, KeyError, TypeError):
        held = json.loads(note)
        return f" as process {int(held['pid'])} (state folder {held['home']})"
    return " on this machine"


def _let_go() -> None:
    """In a forked child: the locks are the parent's alone, and must not outlive it."""
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
