"""A round's contributions on disk, encoded, for those few that are looked at twice: fetching them again is dearer.

Not a cache for others (that is the swarm's blob store), and nothing in it outlives the round or the process.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgpack


class Spool:
    """Files in a folder of its own, which is emptied first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clear()

    def put(self, hotkey: str, leaves: Sequence[bytes]) -> None:
        """Keep a contribution's leaves. Raises OSError (disk full)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        packer = msgpack.Packer()
        with (self.folder / hotkey).open("wb") as file:
            for leaf in leaves:
                file.write(packer.pack(leaf))

    def get(self, hotkey: str) -> list[bytes] | None:
        """What was put, or None."""
        path = self.folder / hotkey
        if not path.exists():
            return None
        with path.open("rb") as file:
            return list(msgpack.Unpacker(file))

    def clear(self) -> None:
        """Forget everything. Raises OSError."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
