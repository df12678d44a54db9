"""Where a neuron keeps its files: its state folder, and what all neurons of a user share (token shards, hotkey locks).

Looks only, so that a folder which cannot be used is told before anything is written.
"""

from __future__ import annotations

import os
from pathlib import Path

from subnet.errors import UserError


def shared_folder() -> Path:
    """`~/.sn38`, the parent of every default state folder. Raises UserError for a user without a home folder."""
    try:
        return Path.home() / ".sn38"
    except RuntimeError as error:
        raise UserError("this user has no home folder; set HOME to a folder that can be written") from error


def shards_folder() -> Path:
    """Cache of the token shards that neurons build; one for all, wherever their state folders are."""
    return shared_folder() / "data"


def check_folders(home: Path) -> None:
    """Raises UserError when the state folder `home` or the shared folders could not be written."""
    _check(home, "the state folder", "give another --home")
    remedy = "mend that, or set HOME to a folder that can be written"
    for folder in (shared_folder(), shards_folder()):
        _check(folder, "the folder that a user's neurons share", remedy)


def _check(folder: Path, what: str, remedy: str) -> None:
    nearest = folder
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    why = ""
    if not nearest.is_dir():
        why = "is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        why = "may not be written"
    if why:
        which = "it" if nearest == folder else str(nearest)
        raise UserError(f"{folder} cannot be used as {what}: {which} {why}; {remedy}")
