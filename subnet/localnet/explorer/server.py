"""The explorer's HTTP server: the page's files, and the views as JSON. GET only; nothing here changes anything.

HTTP itself (its parser, its bounds on lines and headers) is the websockets library's, which the chain listens with
anyway; it hangs up on what is not a GET. A whole request, answer included, has one deadline, connections are few, and
an answer is worked out once a block however many ask. The Host header must name this machine: a page from elsewhere
whose name was made to point here (DNS rebinding) is refused.
"""

from __future__ import annotations

import json
import logging
import re
from asyncio import BaseTransport
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from subnet.localnet.chain import Chain
from subnet.localnet.explorer import views
from subnet.localnet.explorer.history import History
from subnet.localnet.explorer.views import NotFound, Source

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
REQUEST_SECONDS = 5.0
"""For a client to send its request and take the answer."""
MAX_ANSWERS = 32
"""Answers remembered for the head block."""

PAGE = Path(__file__).parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ALWAYS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

ROUTES: list[tuple[re.Pattern[str], Callable[..., dict[str, Any]]]] = [
    (re.compile(r"/api/overview"), views.overview),
    (re.compile(r"/api/accounts"), views.accounts),
    (re.compile(r"/api/subnet/(\d{1,5})"), lambda source, netuid: views.subnet(source, int(netuid))),
    (re.compile(r"/api/weights/(\d{1,5})"), lambda source, netuid: views.weights(source, int(netuid))),
    (re.compile(r"/api/block/(\d{1,12})"), lambda source, number: views.block(source, int(number))),
    (re.compile(r"/api/account/(\w{1,60})", re.ASCII), views.account),
]


class Explorer:
    """Serves one chain; raises OSError from `start` when the port cannot be had."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files = {f"/{path.name}": (path.read_bytes(), TYPES[path.suffix]) for path in sorted(PAGE.iterdir())}
        self._files["/"] = self._files["/index.html"]
        self._answers: dict[str, bytes] = {}
        self._answered_at = b""
        self._names: set[str] = set()
        self._server: Server | None = None

    @classmethod
    def of(cls, chain: Chain, block_time: float) -> Explorer:
        """An explorer that remembers from now on; `block_time` in seconds."""
        return cls(Source(chain, History(chain), block_time))

    async def start(self, host: str, port: int) -> int:
        """Listens, and returns the port (the one the system chose when `port` is 0)."""
        self._names = {"localhost", host.lower()}
        quiet = logging.getLogger(f"{__name__}.http")
        quiet.setLevel(logging.CRITICAL)  # a stranger's bad request is no fault of this program
        self._server = await serve(
            _never,
            host,
            port,
            process_request=self._process,
            create_connection=_Bounded,
            open_timeout=REQUEST_SECONDS,
            close_timeout=REQUEST_SECONDS,
            compression=None,
            logger=quiet,
        )
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            for connection in list(self._server.handlers):
                connection.transport.abort()
            self._server.close()
            await self._server.wait_closed()

    def _process(self, _: ServerConnection, request: Request) -> Response:
        try:
            return self._answer(request)
        except NotFound as error:
            return _text(HTTPStatus.NOT_FOUND, str(error))
        except Exception:
            # One view that fails must not take the others, or the chain, with it; it is logged, and the reader told.
            logger.exception("%s failed", request.path)
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "the explorer failed; the chain's own output says why")

    def _answer(self, request: Request) -> Response:
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or not self._is_here(hosts[0]):
            return _text(HTTPStatus.FORBIDDEN, "this address is not served; use http://127.0.0.1 and the port")
        path = request.path.partition("?")[0]
        if path in self._files:
            content, kind = self._files[path]
            return _response(HTTPStatus.OK, content, kind)
        return _response(HTTPStatus.OK, self._json(path), "application/json")

    def _is_here(self, host: str) -> bool:
        """Whether a Host header names this machine by an address, or by a name that nobody else can point here."""
        try:
            named = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if named in self._names:
            return True
        try:
            ip_address(named)
        except ValueError:
            return False
        return True

    def _json(self, path: str) -> bytes:
        head = self._source.chain.head.hash
        if self._answered_at != head:
            self._answers.clear()
            self._answered_at = head
        if path not in self._answers:
            body = _view(self._source, path)
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            self._answers[path] = body
        return self._answers[path]


class _Bounded(ServerConnection):
    """A connection that hangs up when there are too many."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.server.handlers) > MAX_CONNECTIONS:
            self.transport.abort()


async def _never(_: ServerConnection) -> None:
    """No websocket is ever opened: every request is answered before."""


def _view(source: Source, path: str) -> bytes:
    for pattern, view in ROUTES:
        found = pattern.fullmatch(path)
        if found:
            return json.dumps(view(source, *found.groups()), separators=(",", ":")).encode()
    raise NotFound("there is nothing at this address")


def _text(status: HTTPStatus, text: str) -> Response:
    return _response(status, f"{text}\n".encode(), "text/plain")


def _response(status: HTTPStatus, body: bytes, kind: str) -> Response:
    headers = Headers({**ALWAYS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))})
    return Response(status.value, status.phrase, headers, body)
