"""The last judged round's sketches on disk, with the secret that says of which elements they are.

A validator that restarts knows last round's news again. Unlike the scores (`scores`) they may be lost: what is damaged,
or of a model with another number of elements, is one line in the log and a fresh start.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
from numpy.typing import NDArray

SECRET_BYTES = 32
_VERSION = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sketchbook:
    """`secret`: this validator's own. `sketches`: float32 [size] by hotkey."""

    secret: bytes
    sketches: Mapping[str, NDArray[np.float32]]


def load(path: Path, size: int) -> Sketchbook:
    """What was saved with sketches of `size` elements, or an empty one with a new secret."""
    if path.exists():
        try:
            return _parse(path.read_bytes(), size)
        except (OSError, ValueError) as error:
            log.warning("the sketches in %s are of no use (%s); copies of the last round are not told", path, error)
    return Sketchbook(secrets.token_bytes(SECRET_BYTES), {})


def save(path: Path, book: Sketchbook) -> None:
    """Write it beside `path` and rename it over. Raises OSError (disk full) with the old one intact."""
    rows = {hotkey: sketch.astype("<f4").tobytes() for hotkey, sketch in book.sketches.items()}
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(msgpack.packb({"version": _VERSION, "secret": book.secret, "sketches": rows}))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _parse(raw: bytes, size: int) -> Sketchbook:
    try:
        document = msgpack.unpackb(raw)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ValueError("damaged") from error
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("of another version")
    secret, rows = document.get("secret"), document.get("sketches")
    if not (isinstance(secret, bytes) and len(secret) == SECRET_BYTES and isinstance(rows, dict)):
        raise ValueError("damaged")
    if not all(isinstance(h, str) and isinstance(row, bytes) and len(row) == 4 * size for h, row in rows.items()):
        raise ValueError("of another model")
    sketches = {hotkey: np.frombuffer(row, "<f4").astype(np.float32) for hotkey, row in rows.items()}
    if not all(np.isfinite(sketch).all() for sketch in sketches.values()):
        raise ValueError("damaged")
    return Sketchbook(secret, sketches)
