"""A neuron as a process: flags, logging, signals, and one line for whatever the user can mend.

The first SIGTERM or Ctrl-C lets the neuron finish the exchange it has committed to and leave; a second one ends it at
once. Heavy imports wait until the flags have been accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from subnet.chain.flags import ChainFlags, add_chain_flags
from subnet.config import NodeConfig, RunConfig, load_run, run_names
from subnet.errors import UserError
from subnet.swarm.errors import SwarmError

if TYPE_CHECKING:
    from subnet.neuron import Neuron

Role = Callable[["Neuron"], Awaitable[None]]

log = logging.getLogger("subnet")


def parser(role: str) -> argparse.ArgumentParser:
    """The flags of a neuron, in the ecosystem's habits."""
    flags = argparse.ArgumentParser(prog=f"sn38 {role}", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add_chain_flags(flags)
    known = ", ".join(run_names())
    flags.add_argument(
        "--run", help=f"run file, or the name of one shipped ({known}); demo on a local chain, else 150m"
    )
    flags.add_argument("--home", type=Path, help="state folder (~/.sn38/NETWORK-NETUID/WALLET-HOTKEY)")
    flags.add_argument("--data.path", dest="data_path", type=Path, help="folder of the run's text or token shards")
    flags.add_argument("--device", default="cpu", help="torch device of training and evaluation")
    flags.add_argument("--threads", type=int, default=0, help="torch threads; 0: torch's choice")
    flags.add_argument("--swarm.host", dest="swarm_host", help="address to listen on (127.0.0.1 on a local chain)")
    flags.add_argument("--swarm.port", dest="swarm_port", type=int, default=0, help="TCP port; 0: kept from last time")
    flags.add_argument(
        "--swarm.announce", dest="announce", action="append", default=[], help="public multiaddr, repeatable"
    )
    flags.add_argument("--no-wandb", action="store_true", help="no Weights & Biases")
    flags.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return flags


def node_config(args: argparse.Namespace, flags: ChainFlags) -> NodeConfig:
    """What the flags say of this machine."""
    home = (
        args.home
        or Path.home()
        / ".sn38"
        / f"{_slug(flags.network)}-{flags.netuid}"
        / f"{flags.wallet_name}-{flags.wallet_hotkey}"
    )
    if args.threads < 0:
        raise UserError(f"--threads must be 0 or more, got {args.threads}")
    if not 0 <= args.swarm_port <= 65535:
        raise UserError(f"--swarm.port must be a TCP port, got {args.swarm_port}")
    return NodeConfig(
        home=home.expanduser(),
        device=args.device,
        threads=args.threads,
        wandb="disabled" if args.no_wandb else _wandb_mode(),
        host=args.swarm_host or ("127.0.0.1" if _is_local(flags.network) else "0.0.0.0"),
        port=args.swarm_port,
        announce=tuple(args.announce),
        data_path=args.data_path,
        log_level=args.log_level,
    )


def run_neuron(name: str, role: Role, argv: list[str]) -> int:
    """Parse, start, run `role` and stop; the exit code is 0 for a clean leave and 2 for a user's mistake."""
    args = parser(name).parse_args(argv)
    try:
        flags = ChainFlags.of(args)
        node = node_config(args, flags)
        run = load_run(args.run or ("demo" if _is_local(flags.network) else "150m"))
        logging.basicConfig(
            level=args.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
        )
        logging.getLogger("hivemind").setLevel(logging.ERROR)
        asyncio.run(_live(name, role, flags, node, run))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except SwarmError as error:
        print(f"error: {error}; start this neuron again, it resumes from {node.home}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _live(name: str, role: Role, flags: ChainFlags, node: NodeConfig, run: RunConfig) -> None:
    from subnet.neuron import Neuron

    neuron = await Neuron.start(name, flags, node, run)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _leave, neuron, number, loop)
    work = asyncio.ensure_future(role(neuron))
    try:
        await work
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await neuron.stop()
    log.info("left cleanly; state and metrics are in %s", node.home)


def _leave(neuron: Neuron, number: signal.Signals, loop: asyncio.AbstractEventLoop) -> None:
    log.info("leaving after the exchange in progress; once more to end at once")
    neuron.stopping.set()
    loop.remove_signal_handler(number)


def _is_local(network: str) -> bool:
    return network == "local" or network.startswith(("ws://127.", "ws://localhost", "ws://[::1]"))


def _slug(network: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]+", "-", network.removeprefix("ws://").removeprefix("wss://")).strip("-")


def _wandb_mode() -> str:
    """ "online" for a user who is logged in (a key in the environment or in ~/.netrc), else "offline"."""
    import netrc
    import os

    if os.environ.get("WANDB_API_KEY"):
        return "online"
    try:
        return "online" if netrc.netrc().authenticators("api.wandb.ai") else "offline"
    except (OSError, netrc.NetrcParseError):
        return "offline"
