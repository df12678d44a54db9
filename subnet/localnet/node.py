"""The running node: the block loop and the RPC server around one chain.

Time is here and nowhere below: a block's moment comes from the event loop's clock, its timestamp from the wall
clock.
"""

from __future__ import annotations

import asyncio
import logging
import time

from subnet.localnet import beacon
from subnet.localnet.chain import Chain, hex0x
from subnet.localnet.explorer.server import Explorer
from subnet.localnet.methods import Methods
from subnet.localnet.rpc import RpcServer

logger = logging.getLogger(__name__)

REPORT_SECONDS = 600
"""Between two lines of progress."""


async def run(
    chain: Chain, block_time: float, host: str, port: int, explorer_port: int, stop: asyncio.Event, drand: str | None
) -> None:
    """Serves until `stop`. OSError when the port cannot be had; the explorer's alone is only missed.

    drand: URL of an HTTP endpoint that pulses of the beacon come from; without one the chain hears none.
    """
    server = RpcServer(Methods(chain, "SN38 localnet").table())
    explorer = Explorer.of(chain, block_time)
    bound = await server.start(host, port)
    following: asyncio.Task[None] | None = None
    try:
        chain.produce(_now_ms())
        print(
            f"localnet ready on ws://{host}:{bound} (genesis {hex0x(chain.genesis)}, block {chain.head.number})",
            flush=True,
        )
        await _open(explorer, host, explorer_port)
        if drand is not None:
            following = asyncio.create_task(beacon.follow(chain, drand), name="beacon")
        await _produce(chain, block_time, stop)
    finally:
        if following is not None:
            following.cancel()
        await explorer.stop()
        await server.stop()


async def _open(explorer: Explorer, host: str, port: int) -> None:
    try:
        print(f"explorer on http://{host}:{await explorer.start(host, port)}/", flush=True)
    except OSError as error:
        logger.warning("no explorer on port %d (%s); free it, or pass another --explorer-port", port, error.strerror)


async def _produce(chain: Chain, block_time: float, stop: asyncio.Event) -> None:
    clock = asyncio.get_running_loop().time
    due = clock() + block_time
    report = clock() + REPORT_SECONDS
    while True:
        try:
            await asyncio.wait_for(stop.wait(), timeout=max(due - clock(), 0))
            return
        except asyncio.TimeoutError:
            pass
        chain.produce(_now_ms())
        # A machine that fell behind resumes its pace rather than pouring out the blocks it missed.
        due = max(due + block_time, clock())
        if clock() >= report:
            report += REPORT_SECONDS
            logger.info("block %d", chain.head.number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
