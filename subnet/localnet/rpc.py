"""JSON-RPC 2.0 over a websocket: framing, batches, subscriptions and their bounds.

Knows nothing of blocks or state: methods.py gives it functions. One task reads a connection and one writes it; a
client that does not read its notifications is disconnected. Wire behaviour follows Substrate's jsonrpsee server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 15 * 1024 * 1024
MAX_BATCH = 1024
MAX_CONNECTIONS = 512
MAX_SUBSCRIPTIONS = 1024
"""Per connection, as Substrate's default."""
MAX_UNSENT = 4096
"""Messages waiting for a client before it is disconnected."""
GOODBYE_SECONDS = 0.5
"""For clients to answer the goodbye; whoever does not is cut off."""

ORIGINS = [
    None,
    re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"),
    Origin("https://polkadot.js.org"),
]
"""A browser page from elsewhere must not reach a chain whose keys everybody knows; programs send no Origin."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class RpcError(Exception):
    """An error a method answers with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def body(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class Subscription:
    """One client's open subscription; `notify` is dropped once it is closed."""

    def __init__(self, connection: Connection, identity: str, method: str) -> None:
        self._connection = connection
        self.identity = identity
        self._method = method
        self.closed = False
        self.on_close: Callable[[], object] = lambda: None

    def notify(self, result: Any) -> None:
        if not self.closed:
            params = {"subscription": self.identity, "result": result}
            self._connection.send({"jsonrpc": "2.0", "method": self._method, "params": params})

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._connection.subscriptions.pop(self.identity, None)
            self.on_close()


Method = Callable[["Connection", list[Any]], Any]


class Connection:
    """One client: its unsent messages and its subscriptions."""

    _identities = itertools.count(1)

    def __init__(self, socket: ServerConnection, methods: dict[str, Method]) -> None:
        self._socket = socket
        self._methods = methods
        self._unsent: asyncio.Queue[str] = asyncio.Queue(MAX_UNSENT)
        self._held: list[Any] | None = None
        """While a request is answered: what must go out behind the answer, such as a subscription's first update."""
        self.subscriptions: dict[str, Subscription] = {}

    def subscribe(self, notification: str) -> Subscription:
        """A new subscription whose updates go out as `notification`."""
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RpcError(-32006, "Too many subscriptions on the connection")
        subscription = Subscription(self, f"{next(self._identities):016x}", notification)
        self.subscriptions[subscription.identity] = subscription
        return subscription

    def send(self, message: Any) -> None:
        if self._held is not None:
            self._held.append(message)
            return
        try:
            self._unsent.put_nowait(json.dumps(message, separators=(",", ":")))
        except asyncio.QueueFull:
            logger.warning("a client does not read its messages; disconnected")
            self.abort()

    def abort(self) -> None:
        """Hang up without a goodbye."""
        self._socket.transport.abort()

    async def run(self) -> None:
        writer = asyncio.create_task(self._write())
        try:
            async for text in self._socket:
                held: list[Any] = []
                self._held = held
                reply = self._answer(text)
                self._held = None
                for message in [reply, *held] if reply is not None else held:
                    self.send(message)
        except ConnectionClosed:
            pass
        finally:
            for subscription in list(self.subscriptions.values()):
                subscription.close()
            writer.cancel()

    async def _write(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                await self._socket.send(await self._unsent.get())

    def _answer(self, text: str | bytes) -> Any:
        try:
            request = json.loads(text)
        except (ValueError, RecursionError):
            return _failure(None, RpcError(PARSE_ERROR, "Parse error"))
        if not isinstance(request, list):
            return self._call(request)
        if not request or len(request) > MAX_BATCH:
            return _failure(None, RpcError(INVALID_REQUEST, f"A batch holds 1 to {MAX_BATCH} requests"))
        replies = [reply for reply in map(self._call, request) if reply is not None]
        return replies or None

    def _call(self, request: Any) -> dict[str, Any] | None:
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _failure(None, RpcError(INVALID_REQUEST, "Invalid request"))
        identity = request.get("id")
        name, params = request["method"], request.get("params") or []
        try:
            method = self._methods.get(name)
            if method is None:
                raise RpcError(METHOD_NOT_FOUND, "Method not found", name)
            if not isinstance(params, list):
                raise RpcError(INVALID_PARAMS, "Parameters are given by position")
            result = method(self, params)
        except RpcError as error:
            return _failure(identity, error) if "id" in request else None
        except Exception:
            # One faulty request must not end the chain; it is logged, and the caller told.
            logger.exception("%s failed", name)
            return _failure(identity, RpcError(INTERNAL_ERROR, "Internal error"))
        return {"jsonrpc": "2.0", "id": identity, "result": result} if "id" in request else None


def _failure(identity: Any, error: RpcError) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "error": error.body()}


class RpcServer:
    """The listening socket; raises OSError from `start` when the port cannot be had."""

    def __init__(self, methods: dict[str, Method]) -> None:
        self._methods = methods
        self._server: Server | None = None
        self._connections: set[Connection] = set()

    async def start(self, host: str, port: int) -> int:
        """Listens, and returns the port (the one the system chose when `port` is 0)."""
        self._server = await serve(
            self._serve, host, port, max_size=MAX_REQUEST_BYTES, origins=ORIGINS, compression=None, ping_interval=30
        )
        return next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            closed = asyncio.ensure_future(self._server.wait_closed())
            await asyncio.wait([closed], timeout=GOODBYE_SECONDS)
            for connection in list(self._connections):
                connection.abort()
            await asyncio.wait([closed], timeout=GOODBYE_SECONDS)

    async def _serve(self, socket: ServerConnection) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            await socket.close(1013, "too many connections")
            return
        connection = Connection(socket, self._methods)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
