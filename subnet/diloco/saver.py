"""Checkpoints written in the background: the round loop hands over and goes on.

Not the format (that is `subnet.diloco.checkpoint`). One is written at a time, so at most one old copy of the vectors is
kept in memory; what cannot be written costs that checkpoint, never the node.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch import Tensor

from subnet.diloco import checkpoint
from subnet.diloco.state import OuterState
from subnet.errors import UserError

log = logging.getLogger(__name__)


class Saver:
    """The one writer of a folder of checkpoints; used from an event loop."""

    def __init__(self, folder: Path, kept: int) -> None:
        """`kept`: checkpoints left after each, at least 1."""
        self._folder = folder
        self._kept = kept
        self._writing: Future[bool] | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writing is not None and not self._writing.done()

    def begin(
        self, state: OuterState, feedback: Tensor | None, inner: Mapping[str, Tensor], meta: Mapping[str, Any]
    ) -> Future[bool]:
        """Start to write what `checkpoint.save` takes; not while `busy`. The tensors must stay as they are until then.

        The future is False when it could not be written, of which a warning then tells.
        """
        if self.busy:
            raise RuntimeError("a checkpoint is still being written")
        done: Future[bool] = Future()
        self._writing = done
        # a daemon: a disk that never answers must not keep the process from ending
        work = threading.Thread(target=self._write, args=(done, state, feedback, inner, meta), daemon=True)
        work.start()
        return done

    async def settled(self, seconds: float) -> bool:
        """Wait until nothing is being written any more, at most so long; whether that is so.

        Raises what is no fault of the disk: RuntimeError for tensors that were changed meanwhile.
        """
        if self._writing is None:
            return True
        await asyncio.wait([asyncio.wrap_future(self._writing)], timeout=max(0.0, seconds))
        if self._writing.done():
            self._writing.result()
        return not self.busy

    def _write(
        self,
        done: Future[bool],
        state: OuterState,
        feedback: Tensor | None,
        inner: Mapping[str, Tensor],
        meta: Mapping[str, Any],
    ) -> None:
        try:
            checkpoint.save(self._folder, state, feedback, inner, meta, self._kept)
        except UserError as error:
            log.warning("%s; going on without it, the next round tries again", error)
            done.set_result(False)
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            done.set_exception(error)
        else:
            done.set_result(True)
