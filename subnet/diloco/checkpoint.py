"""Local checkpoints that are whole or not there: the consensus state and what is this node's own.

Not an exchange format (a peer's state comes leaf by leaf and is checked against a digest). A checkpoint is a folder,
made under another name, flushed to disk, its manifest last, then renamed; hashes in it expose whatever a disk did to it
later. Flat vectors lie in files of some GB, each a run of the canonical layout's leaves of all of them.
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
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from subnet.diloco.layout import Layout
from subnet.diloco.merkle import hash_leaves, root
from subnet.diloco.state import OuterState
from subnet.errors import UserError

log = logging.getLogger(__name__)

FILE_BYTES = 2**32
"""About how much a file of tensors holds."""
_FORMAT = 2
_MANIFEST = "checkpoint.json"
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
    folder: Path,
    state: OuterState,
    feedback: Tensor | None,
    inner: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    kept: int = 2,
) -> Path:
    """Write a checkpoint into `folder` and delete all but the newest `kept`; one process per folder at a time.

    `kept` is at least 1, `inner` is `InnerTrainer.state_dict()`, `meta` goes into JSON. A crash at any point leaves the
    earlier checkpoints as they were. Nothing is copied but a file's share at a time. Returns the new one's folder.

    Raises UserError if it cannot be written (a full disk, no permission), again with the earlier ones intact, and
    RuntimeError, with nothing saved, when torch has changed one of the tensors meanwhile.
    """
    tensors = {"theta": state.theta, "momentum": state.momentum}
    if feedback is not None:
        tensors["feedback"] = feedback
    tensors |= {_INNER + name: tensor for name, tensor in inner.items()}
    stamps = {name: tensor._version for name, tensor in tensors.items()}  # torch's count of in-place changes
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(_UNFINISHED + "*"):
            shutil.rmtree(leftover)
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder))
        try:
            _write(unfinished, tensors, state.layout, {"format": _FORMAT, "step": state.step, "meta": dict(meta)})
            if changed := [name for name, tensor in tensors.items() if tensor._version != stamps[name]]:
                raise RuntimeError(f"{changed[0]} was changed while it was being saved")
            serials = _serials(folder)
            final = folder / f"{max(serials, default=0) + 1:08d}"
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _sync(folder)
        for serial in sorted(serials, reverse=True)[kept - 1 :]:
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


def _write(folder: Path, tensors: dict[str, Tensor], layout: Layout, body: dict[str, Any]) -> None:
    flat = {name: tensor for name, tensor in tensors.items() if tensor.shape == (layout.numel,)}
    share = {name: tensor for name, tensor in tensors.items() if name not in flat}
    n = -(-sum(tensor.nbytes for tensor in flat.values()) // FILE_BYTES)
    files = []
    for number, run in enumerate(layout.parts(n)):
        start, stop = layout.span(*run)
        file = folder / f"tensors-{number:05d}.safetensors"
        save_file({name: tensor[start:stop] for name, tensor in flat.items()} | share, file)
        _sync(file)
        files.append({"file": file.name, "start": start, "stop": stop, "hash": _hash_of_file(file).hex()})
        share = {}
    body = {**body, "flat": {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in flat.items()}}
    body |= {"numel": layout.numel, "files": files}
    manifest = json.dumps({**body, "hash": _hash_of_body(body)}, indent=1)
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
            body = json.loads(stream.read(_MAX_MANIFEST))
        if body["format"] != _FORMAT:
            raise _Damaged("it is of another version")
        if body.pop("hash") != _hash_of_body(body):
            raise _Damaged("its manifest is not what its hash says")
        if body["numel"] != layout.numel:
            raise UserError(
                f"checkpoint {folder} is of another model (of {body['numel']} parameters instead of {layout.numel}); "
                "move it away, or give this run a folder of its own"
            )
        tensors = {name: torch.empty(layout.numel, dtype=getattr(torch, kind)) for name, kind in body["flat"].items()}
        flat = set(tensors)
        for entry in body["files"]:
            file = folder / entry["file"]
            if _hash_of_file(file).hex() != entry["hash"]:
                raise _Damaged(f"{entry['file']} is not what its hash says")
            # Copies, because the library's tensors are mapped onto a file that a later save deletes.
            with safe_open(file, "pt") as stored:
                for name in stored.keys():  # noqa: SIM118 - it is no mapping
                    value = stored.get_tensor(name)
                    if name in flat:
                        tensors[name][entry["start"] : entry["stop"]] = value
                    else:
                        tensors[name] = value.clone()
        state = OuterState(tensors["theta"], tensors["momentum"], body["step"], layout)
    except PermissionError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise _Damaged(str(error)) from error
    inner = {name.removeprefix(_INNER): t for name, t in tensors.items() if name.startswith(_INNER)}
    return Checkpoint(state, tensors.get("feedback"), inner, body["meta"])


def _serials(folder: Path) -> dict[int, Path]:
    return {int(path.name): path for path in folder.iterdir() if path.name.isdecimal()}


def _hash_of_body(body: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=32).hexdigest()


def _hash_of_file(file: Path) -> bytes:
    """Merkle root over the file's pieces: a tree is what all cores can compute together."""
    with open(file, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise _Damaged(f"{file.name} is empty")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            pieces = [view[start : start + _HASHED_AT_ONCE] for start in range(0, len(view), _HASHED_AT_ONCE)]
            try:
                return root(hash_leaves(pieces))
            finally:
                for piece in pieces:
                    piece.release()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
