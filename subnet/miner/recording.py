"""What a miner keeps of a round's inner steps, so that an audit can repeat a piece of them: snapshots and losses.

Not the audit, and nothing a miner itself goes on from. A snapshot is copied in memory while the steps stand still, then
hashed and written while they go on; of such copies there is one at a time.
"""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from subnet.config import RunConfig
from subnet.diloco.inner import InnerTrainer
from subnet.diloco.layout import Layout
from subnet.diloco.merkle import Tree, hash_leaves
from subnet.diloco.snapshot import VECTORS, Snapshot
from subnet.errors import UserError
from subnet.exchange.trace import Mark, Trace, open_trace, rounded
from subnet.exchange.window import Window
from subnet.swarm.store import BlobStore

log = logging.getLogger(__name__)

_TRACE = "trace"

T = TypeVar("T")


@dataclass(frozen=True)
class Recorded:
    """A round's trace with its snapshots, ready to be shown."""

    trace: Trace
    packed: bytes
    tree: Tree
    snapshots: tuple[Snapshot, ...]

    @classmethod
    def load(cls, folder: Path, layout: Layout, run: RunConfig) -> Recorded | None:
        """What an earlier process finished and left in a round's folder; None if it did not come to that."""
        try:
            packed = (folder / _TRACE).read_bytes()
            trace = open_trace(packed, run)
        except (OSError, ValueError) as error:
            log.info("the inner steps recorded in %s are of no use: %s", folder, error)
            return None
        snapshots = tuple(Snapshot(folder / f"{n}.f32", layout) for n in range(len(trace.marks)))
        return cls(trace, packed, Tree(hash_leaves([packed])), snapshots)

    @property
    def root(self) -> bytes:
        """What the commitment says."""
        return self.tree.root

    def offer(self, store: BlobStore, window: Window) -> None:
        """Show it from the commit deadline on until the next round, in which it may be audited, is over."""
        last, start = window.round + 1, window.commit_end
        store.add(self.root, [self.packed], tree=self.tree, not_before_block=start, keep_until_round=last)
        for mark, snapshot in zip(self.trace.marks, self.snapshots, strict=True):
            store.add(mark.root, snapshot, tree=snapshot.tree, not_before_block=start, keep_until_round=last)

    def withdraw(self, store: BlobStore) -> None:
        """Show it no longer."""
        for root in (self.root, *(mark.root for mark in self.trace.marks)):
            store.drop(root)


class Recording:
    """Of one round, in a folder of its own, which is emptied first."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder = folder
        self.layout = layout
        self._marks: list[tuple[int, int, int]] = []
        self._writes: list[Future[Snapshot]] = []
        self._joined = 0
        self._writer = ThreadPoolExecutor(1, "snapshots")
        remove(folder)

    def take(self, at: int, lr_step: int, trainer: InnerTrainer) -> None:
        """A snapshot before step `at` of the round. Raises UserError when the one before could not be written."""
        if self._writes:
            self._written(self._writes[-1])
        moments = trainer.state_dict()
        zeros = torch.zeros(0 if moments else self.layout.numel)
        vectors = [trainer.theta(), moments.get("exp_avg", zeros), moments.get("exp_avg_sq", zeros)]
        self._marks.append((at, lr_step, int(moments["step"]) if moments else 0))
        self._writes.append(self._writer.submit(self._write, self.folder / f"{len(self._writes)}.f32", vectors))

    def join(self) -> None:
        """From the next snapshot on the parameters are the round's outer ones with what was trained on top."""
        self._joined = len(self._marks)

    def finish(self, losses: list[float], lr_step: int, trainer: InnerTrainer) -> Recorded | None:
        """The last snapshot and the trace, with the loss of every batch tried; None if there was none.

        Raises UserError when a snapshot could not be written.
        """
        try:
            if not losses:
                return None
            if self._marks[-1][0] < len(losses) or self._joined == len(self._marks):
                self.take(len(losses), lr_step, trainer)
            snapshots = tuple(self._written(write) for write in self._writes)
            trees = [Tree(snapshot.leaf_hashes()) for snapshot in snapshots]
            marks = tuple(Mark(*mark, tree.root) for mark, tree in zip(self._marks, trees, strict=True))
            trace = Trace(rounded(losses), marks, self._joined)
            packed = trace.pack()
            self._written(self._writer.submit((self.folder / _TRACE).write_bytes, packed))
        finally:
            self.close()
        return Recorded(trace, packed, Tree(hash_leaves([packed])), snapshots)

    def close(self) -> None:
        """End the writing."""
        self._writer.shutdown(wait=True)

    def _write(self, path: Path, vectors: list[torch.Tensor]) -> Snapshot:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Snapshot.write(path, self.layout, vectors)

    def _written(self, write: Future[T]) -> T:
        try:
            return write.result()
        except OSError as error:
            size = VECTORS * self.layout.numel * 4 >> 20
            raise UserError(
                f"cannot keep the inner steps for an audit in {self.folder}: {error.strerror or error}; every "
                f"scoring.replay_steps take {size + 1} MiB there, for three rounds: make room, or give another --home"
            ) from error


def remove(folder: Path) -> None:
    """A recording's folder, or all of them, if there are any. Raises OSError."""
    if folder.exists():
        shutil.rmtree(folder)
