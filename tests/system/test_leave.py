"""Leaving always ends, even where a library loses a cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subnet.chain import client
from subnet.chain.client import Chain
from subnet.demo.stage import free_port


def test_hanging_up_ends_when_the_sdks_session_lost_its_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "CLOSE_SECONDS", 0.02)

    class Deaf:
        """As the SDK closes: it waits for its session's task, which ends at the second cancellation only."""

        cancelled = 0

        async def session(self) -> None:
            while self.cancelled < 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled += 1

        async def close(self) -> None:
            session = asyncio.ensure_future(self.session())
            await asyncio.sleep(0)
            session.cancel()
            await session

    async def act() -> int:
        chain = Chain(f"ws://127.0.0.1:{free_port()}")
        deaf: Any = Deaf()
        chain._client = deaf
        await asyncio.wait_for(chain.close(), 10.0)
        return int(deaf.cancelled)

    assert asyncio.run(act()) == 2
