"""Waiting with an end: `timeout`, and `end` for tasks. Not asyncio's `wait_for`.

Before Python 3.12 `wait_for` swallows a cancellation that arrives as its work completes: the task goes on, and whoever
cancelled it waits for ever.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from typing import Any

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

__all__ = ["end", "timeout"]

_AGAIN_SECONDS = 0.5


async def end(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until they have ended, however they end; a library's `wait_for` is told again."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
