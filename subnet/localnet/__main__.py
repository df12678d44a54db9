"""`python -m subnet.localnet`: a Bittensor chain for development in one process, for the unmodified SDK and btcli.

    python -m subnet.localnet --ephemeral
    btcli subnets list --network local

Not the Subtensor: its keys are public, and its consensus is one process. State is kept in --state and survives
being killed.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from subnet.localnet import node
from subnet.localnet.dispatch import Rules
from subnet.localnet.errors import LocalnetError
from subnet.localnet.genesis import DEFAULT_BLOCK_TIME, open_chain
from subnet.localnet.store import Store

MIN_BLOCK_TIME = 0.01


def parser() -> argparse.ArgumentParser:
    parse = argparse.ArgumentParser(
        prog="sn38 localnet", description="A Bittensor chain for development, in one process."
    )
    parse.add_argument("--port", type=int, default=9944, help="websocket port; 0 lets the system choose (default 9944)")
    parse.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parse.add_argument(
        "--explorer-port", type=int, help="port of the explorer's page (default: the one after --port; 0: any)"
    )
    parse.add_argument("--block-time", type=float, help=f"seconds per block (default {DEFAULT_BLOCK_TIME})")
    parse.add_argument("--state", type=Path, help="folder of the chain (default ~/.sn38/localnet)")
    parse.add_argument("--ephemeral", action="store_true", help="keep the chain in memory only")
    parse.add_argument(
        "--tempo", type=int, default=360, help="blocks per epoch of newly registered subnets (default 360)"
    )
    parse.add_argument(
        "--weights-rate-limit",
        type=int,
        default=100,
        help="blocks between a hotkey's weights, on new subnets (default 100)",
    )
    parse.add_argument(
        "--beacon",
        metavar="URL",
        help="drand HTTP endpoint whose pulses open timelocked weights, like https://api.drand.sh (default: none)",
    )
    parse.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    return parse


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the chain until interrupted; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("websockets").setLevel(logging.ERROR)
    arguments = parser().parse_args(argv)
    try:
        _check(arguments)
        return asyncio.run(_run(arguments))
    except LocalnetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _check(arguments: argparse.Namespace) -> None:
    if arguments.block_time is not None and not MIN_BLOCK_TIME <= arguments.block_time <= 60:
        raise LocalnetError(f"--block-time must be between {MIN_BLOCK_TIME} and 60 seconds, got {arguments.block_time}")
    if not 1 <= arguments.tempo <= 65535:
        raise LocalnetError(f"--tempo must be between 1 and 65535 blocks, got {arguments.tempo}")
    if not 0 <= arguments.weights_rate_limit < 1 << 32:
        raise LocalnetError(f"--weights-rate-limit must not be negative, got {arguments.weights_rate_limit}")
    for flag, port in (("--port", arguments.port), ("--explorer-port", arguments.explorer_port or 0)):
        if not 0 <= port <= 65535:
            raise LocalnetError(f"{flag} must be between 0 and 65535, got {port}")
    if arguments.beacon is not None and not re.match(r"https?://[^/]", arguments.beacon):
        raise LocalnetError(f"--beacon must be an http:// or https:// URL, got {arguments.beacon}")
    if arguments.ephemeral and arguments.state:
        raise LocalnetError("--ephemeral keeps nothing and --state keeps everything; give one of them")


async def _run(arguments: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if arguments.until_eof:
        asyncio.get_running_loop().add_reader(sys.stdin, _await_eof, stop)
    folder = None if arguments.ephemeral else arguments.state or Path.home() / ".sn38" / "localnet"
    store = Store(folder)
    try:
        chain, block_time = open_chain(
            store, arguments.block_time, Rules(arguments.tempo, arguments.weights_rate_limit)
        )
        following = arguments.port and (arguments.port + 1) % 65536
        explorer_port = following if arguments.explorer_port is None else arguments.explorer_port
        await node.run(chain, block_time, arguments.host, arguments.port, explorer_port, stop, arguments.beacon)
        kept = "nothing is kept" if folder is None else f"its state is in {folder}"
        print(f"localnet stopped at block {chain.head.number}; {kept}", flush=True)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LocalnetError(
                f"port {arguments.port} is in use; stop what listens there, or pass another --port"
            ) from error
        raise LocalnetError(f"cannot listen on {arguments.host}:{arguments.port}: {error}") from error
    finally:
        store.close()
    return 0


def _await_eof(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin)
        stop.set()


if __name__ == "__main__":
    sys.exit(main())
