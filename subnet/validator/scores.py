"""The score table on disk: loaded at start, replaced atomically after each round it learnt from."""

from __future__ import annotations

import os
from pathlib import Path

from subnet.errors import UserError
from subnet.scoring.document import from_json, to_json
from subnet.scoring.table import ScoreTable


def load(path: Path) -> ScoreTable:
    """The table of an earlier run of this validator, or an empty one. Raises UserError when the file is damaged."""
    if not path.exists():
        return ScoreTable()
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the score table {path} cannot be read ({error}); move it away to start afresh") from error


def save(path: Path, table: ScoreTable) -> None:
    """Write the table beside `path` and rename it over, so that a crash leaves the old one or the new one.

    Raises UserError (disk full) with the old one intact.
    """
    fresh = path.with_suffix(".new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(to_json(table))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot save the scores in {path}: {error.strerror or error}; make room there, or give another --home"
        ) from error
