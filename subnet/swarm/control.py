"""The neuron's end of the DHT process: start it, have work done in it within a deadline, stop it.

hivemind's control pipe breaks on large messages and blocks when it is full, so both are bounded here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import TimeoutError
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from subnet.errors import UserError
from subnet.swarm import node, process
from subnet.swarm.errors import SwarmError
from subnet.swarm.node import DhtProcess
from subnet.waiting import timeout

MAX_MESSAGE_BYTES = 3500
"""Writes of up to 4096 bytes (PIPE_BUF) reach the other end of a pipe whole; upstream loses its place otherwise."""
MAX_CALLS = 12
"""Calls under way at once: together they never fill the pipe, so that sending does not block."""
_READY_SECONDS = 30.0
_STOP_SECONDS = 3.0

# hivemind gives every sixteen futures a shared memory file of their own; one for thousands is enough.
os.environ.setdefault("HIVEMIND_SHM_BUFFER_SIZE", "8192")


class DhtControl:
    """Runs the functions of `subnet.swarm.node` in the DHT process."""

    def __init__(self, dht: DhtProcess) -> None:
        self._dht = dht
        self._slots = asyncio.Semaphore(MAX_CALLS)
        self._pending: set[Any] = set()
        self.p2pd = 0

    async def start(self) -> tuple[str, list[str]]:
        """Fork the process and wait for it; returns the libp2p daemon's control address and its public ones.

        Raises:
            UserError: the daemon cannot listen.
            SwarmError: the process did not get ready.
        """
        self._dht.start()
        self._dht.claim.note(dht=self._dht.pid)
        try:
            await asyncio.to_thread(self._dht.wait_until_ready, _READY_SECONDS)
        except P2PDaemonError as error:
            raise UserError(f"the swarm cannot listen: {error}; check its host and port") from error
        except TimeoutError as error:
            raise SwarmError(f"the DHT process was not ready within {_READY_SECONDS:.0f} s") from error
        self.p2pd, control, maddrs = await self.call(node.settle, seconds=_READY_SECONDS)
        self._dht.claim.note(dht=self._dht.pid, p2pd=self.p2pd)
        return control, maddrs

    @property
    def alive(self) -> bool:
        """Whether the DHT process runs; it ends with the libp2p daemon."""
        return self._dht.is_alive()

    async def call(self, function: Callable[..., Any], *args: Any, seconds: float) -> Any:
        """`await function(dht, node, *args)` in the DHT process.

        Raises:
            SwarmError: no answer within `seconds`, or the process is gone.
        """
        if not self.alive:
            raise SwarmError("the DHT process has ended")
        work = _Work(function, args)
        size = len(ForkingPickler.dumps(work))
        if size > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {size} bytes would break hivemind's control pipe")
        loop = asyncio.get_running_loop()
        try:
            async with timeout(seconds):
                await self._slots.acquire()
                try:
                    future = self._dht.run_coroutine(work, return_future=True)
                except BaseException:
                    self._slots.release()
                    raise
                # The slot is given back when the process has really answered; the future must live until then.
                self._pending.add(future)
                future.add_done_callback(lambda f: loop.call_soon_threadsafe(self._answered, f))
                return await future
        except asyncio.TimeoutError as error:
            raise SwarmError(f"the DHT process did not answer within {seconds:.1f} s") from error
        except OSError as error:
            raise SwarmError("the DHT process has ended") from error

    async def stop(self) -> None:
        """End the process and the libp2p daemon, kindly first."""
        if self._dht.pid is None:
            return
        self._dht.shutdown_timeout = _STOP_SECONDS
        with suppress(OSError):  # It has ended already, and the pipe with it.
            await asyncio.to_thread(self._dht.shutdown)
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        if self._dht.is_alive():
            self._dht.kill()
        self._dht.join(_STOP_SECONDS)
        if self.p2pd and process.is_running(self.p2pd):
            process.kill_and_wait(self.p2pd)

    def _answered(self, future: Any) -> None:
        self._pending.discard(future)
        self._slots.release()


class _Work:
    """A call that travels through the control pipe."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args

    async def __call__(self, dht: Any, dht_node: Any) -> Any:
        return await self.function(dht, dht_node, *self.args)
