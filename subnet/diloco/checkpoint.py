"""Local checkpoints that are whole or not there: the consensus state and what is this node's own.

Not an exchange format (a peer's state comes leaf by leaf and is checked against a digest). A checkpoint is a folder,
made under another name, flushed to disk, then renamed; a hash in it exposes whatever a disk did to it later.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from subnet.diloco.layout import Layout
from subnet.diloco.merkle import hash_leaves, root
from subnet.diloco.state import OuterState
from subnet.errors import UserError

log = logging.getLogger(__name__)

KEPT = 2
"""Checkpoints left after a save: the new one and the one before it."""
_FORMAT = 1
_TENSORS, _MANIFEST = "tensors.safetensors", "checkpoint.json"
_UNFINISHED = ".unfinished-"
_INNER = "inner."
_MAX_MANIFEST = 1 << 20
_HASHED_AT_ONCE = 1 << 20


@dataclass
class Checkpoint:
    """What `save` was given: `feedback` is the residual of the error feedback (None if the node has none)."""

    state: OuterState
    feedback: Tensor | None
    inner: dict[str, Tensor]
    meta: dict[str, Any]


class _Damaged(Exception):
    """This checkpoint is not what was saved."""


def save(
    folder: Path, state: OuterState, feedback: Tensor | None, inner: Mapping[str, Tensor], meta: Mapping[str, Any]
) -> Path:
    """Write a checkpoint into `folder` and delete all but the newest two; one process per folder at a time.

    `inner` is `InnerTrainer.state_dict()`, `meta` goes into JSON. A crash at any point leaves the earlier checkpoints
    as they were. Returns the new checkpoint's folder.

    Raises UserError if it cannot be written (a full disk, no permission), again with the earlier ones intact.
    """
    tensors = {"theta": state.theta, "momentum": state.momentum}
    if feedback is not None:
        tensors["feedback"] = feedback
    tensors |= {_INNER + name: tensor for name, tensor in inner.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(_UNFINISHED + "*"):
            shutil.rmtree(leftover)
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
        try:
            _write(unfinished, tensors, state.step, meta)
            serials = _serials(folder)
            final = folder / f"{max(serials, default=0) + 1:08d}"
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _sync(folder)
        for serial in sorted(serials)[: -(KEPT - 1)]:
            shutil.rmtree(serials[serial])
    except (OSError, SafetensorError) as error:
        size = sum(t.nbytes for t in tensors.values()) >> 20
        raise UserError(
            f"cannot save a checkpoint in {folder}: {getattr(error, 'strerror', None) or error}; "
            f"make {size + 1} MiB free there, or give another folder; the last checkpoint is intact"
        ) from error
    return final


def load(folder: Path, layout: Layout) -> Checkpoint | None:
    """The newest checkpoint in `folder` that is whole; None if there is none. Damaged ones are logged and passed over.

    Raises UserError if that checkpoint is of a model with another layout, or cannot be read at all.
    """
    try:
        serials = _serials(folder) if folder.is_dir() else {}
        for serial in sorted(serials, reverse=True):
            try:
                return _read(serials[serial], layout)
            except _Damaged as error:
                log.warning("checkpoint %s is damaged (%s); trying the one before it", serials[serial], error)
    except OSError as error:
        raise UserError(f"cannot read the checkpoints in {folder}: {error.strerror or error}") from error
    return None


def _write(folder: Path, tensors: dict[str, Tensor], step: int, meta: Mapping[str, Any]) -> None:
    body = {"format": _FORMAT, "step": step, "meta": dict(meta)}
    file = folder / _TENSORS
    save_file(tensors, file)
    _sync(file)
    manifest = json.dumps({**body, "hash": _hash(file, body).hex()}, indent=1)
    if len(manifest) > _MAX_MANIFEST:
        raise ValueError(f"a checkpoint's meta must stay below {_MAX_MANIFEST} bytes, got {len(manifest)}")
    with open(folder / _MANIFEST, "w", encoding="utf-8") as stream:
        stream.write(manifest)
        stream.flush()
        os.fsync(stream.fileno())
    _sync(folder)


def _read(folder: Path, layout: Layout) -> Checkpoint:
    try:
        with open(folder / _MANIFEST, "rb") as stream:
            manifest = json.loads(stream.read(_MAX_MANIFEST))
        body = {key: manifest[key] for key in ("format", "step", "meta")}
        if body["format"] != _FORMAT or _hash(folder / _TENSORS, body).hex() != manifest["hash"]:
            raise _Damaged("it is not what its hash says, or of another version")
        # Copies, because the library's tensors are mapped onto a file that a later save deletes.
        tensors = {name: tensor.clone() for name, tensor in load_file(folder / _TENSORS).items()}
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _Damaged(str(error)) from error
    inner = {name.removeprefix(_INNER): t for name, t in tensors.items() if name.startswith(_INNER)}
    feedback = tensors.get("feedback")
    try:
        state = OuterState(tensors["theta"], tensors["momentum"], body["step"], layout)
    except ValueError as error:
        raise UserError(
            f"checkpoint {folder} is of another model ({error}); move it away, or give this run a folder of its own"
        ) from error
    return Checkpoint(state, feedback, inner, body["meta"])


def _serials(folder: Path) -> dict[int, Path]:
    return {int(path.name): path for path in folder.iterdir() if path.name.isdecimal()}


def _hash(file: Path, body: Mapping[str, Any]) -> bytes:
    """Merkle root over `body` and the file's pieces; a tree is what all cores can compute together."""
    with open(file, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise _Damaged("its tensors are empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            pieces = [view[start : start + _HASHED_AT_ONCE] for start in range(0, len(view), _HASHED_AT_ONCE)]
            try:
                return root(hash_leaves([json.dumps(body, sort_keys=True).encode(), *pieces]))
            finally:
                for piece in pieces:
                    piece.release()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
