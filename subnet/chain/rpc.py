"""One call to the node: bounded in time, its failures turned into this package's errors; and the hash of a block.

No state and no reconnecting (the SDK's session does that); the bounds themselves are the caller's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from hashlib import blake2b
from typing import Any, TypeVar
from urllib.parse import urlsplit

import bittensor as bt

from subnet.chain.errors import BlockMissing, ChainRefused, ChainUnreachable

T = TypeVar("T")

_LOST_IN_FLIGHT = ("Connection dropped", "Connection lost")


async def read(endpoint: str, operation: Awaitable[T], timeout: float) -> T:
    """Await a read by the SDK.

    Raises ChainUnreachable without an answer within `timeout` seconds; BlockMissing if the node answers that it lacks
    what was asked (a block not yet there, a discarded state, a method).
    """
    try:
        return await _bounded(endpoint, operation, timeout)
    except bt.ChainError as error:
        raise BlockMissing(f"{endpoint}: {error}") from error


async def write(endpoint: str, what: str, operation: Awaitable[bt.ExtrinsicResult], timeout: float) -> dict[str, Any]:
    """Await a transaction by the SDK and return what it reports.

    Raises ChainRefused; ChainUnreachable if its fate is unknown.
    """
    try:
        result = (await _bounded(endpoint, operation, timeout)).raise_for_failure()
    except bt.BittensorError as error:
        if str(error).startswith(_LOST_IN_FLIGHT):
            raise ChainUnreachable(unreachable(endpoint, f"lost while submitting {what}")) from error
        raise refusal(what, error) from error
    return dict(result.data)


def refusal(what: str, error: bt.BittensorError) -> ChainRefused:
    """One line for a transaction that the chain, or the SDK before it, refused."""
    if not isinstance(error, bt.ChainError):
        return ChainRefused(f"{what} was refused: {error}")
    limited = error.code is bt.ErrorCode.RATE_LIMITED
    reason = f"{error.message.rstrip('. ')}; {error.remediation}"
    return ChainRefused(f"the chain refused {what}: {reason}", error.name, limited)


def unreachable(endpoint: str, detail: str) -> str:
    """One line for an endpoint that does not answer."""
    if urlsplit(endpoint).hostname in ("127.0.0.1", "localhost", "::1"):
        return f"cannot reach {endpoint}: is `sn38 localnet` running? ({detail})"
    return f"cannot reach {endpoint}: {detail}; check the network, or give another --subtensor.network"


async def next_header(headers: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    """The next header of an SDK subscription. Raises bt.RpcConnectionError at its end."""
    async for update in headers:
        return dict(update["header"])
    raise bt.RpcConnectionError("the subscription to new blocks ended")


def header_hash(header: dict[str, Any]) -> bytes:
    """Hash of a block, 32 bytes: blake2b-256 of its SCALE-encoded header.

    header: the JSON of `chain_getHeader`, with the number as an int.
    """
    logs = header["digest"]["logs"]
    parts = [
        unhex(header["parentHash"]),
        compact(header["number"]),
        unhex(header["stateRoot"]),
        unhex(header["extrinsicsRoot"]),
        compact(len(logs)),
        *map(unhex, logs),
    ]
    return blake2b(b"".join(parts), digest_size=32).digest()


def compact(number: int) -> bytes:
    """SCALE compact encoding of an integer below 2**30."""
    if number < 1 << 6:
        return (number << 2).to_bytes(1, "little")
    if number < 1 << 14:
        return (number << 2 | 1).to_bytes(2, "little")
    return (number << 2 | 2).to_bytes(4, "little")


def unhex(text: str) -> bytes:
    """Bytes of 0x-prefixed hex."""
    return bytes.fromhex(text.removeprefix("0x"))


async def _bounded(endpoint: str, operation: Awaitable[T], timeout: float) -> T:
    # Unlike asyncio.wait_for, this does not wait for a cancelled operation to end: its clean-up may itself need the
    # connection that does not answer.
    task = asyncio.ensure_future(operation)
    task.add_done_callback(_retrieve)
    try:
        done, _ = await asyncio.wait([task], timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise ChainUnreachable(unreachable(endpoint, f"no answer in {timeout:.0f} s"))
    try:
        return task.result()
    except (bt.RpcConnectionError, bt.ConnectionNotReady, OSError) as error:
        raise ChainUnreachable(unreachable(endpoint, str(error))) from error


class _SessionEnded(logging.Filter):
    """Drops asyncio's report that the SDK's session task died: every call it failed has raised that already.

    It dies of the lost connection, or of an assertion on its way out when the node said goodbye; the next call starts
    another.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        text = str(record.msg)
        return not (text.startswith("Task exception was never retrieved") and "name='rpc-session'" in text)


_session_ended = _SessionEnded()


def quiet_session_ends() -> None:
    """Leave it to `Chain` to say that the node went away: no traceback, no line for every attempt. Idempotent."""
    logging.getLogger("asyncio").addFilter(_session_ended)
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger("bittensor.transport").setLevel(logging.ERROR)


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Mark a late failure of an abandoned operation as seen."""
    if not task.cancelled():
        task.exception()
