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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    flags = argparse.ArgumentParser(prog=f"sn38 {role}")
    add_chain_flags(flags)
    known = ", ".join(run_names())

    def add(name: str, metavar: str, text: str, **options: Any) -> None:
        flags.add_argument(name, metavar=metavar, help=text, **options)

    add("--run", "RUN", f"run file, or one of {known} (default: demo on a local chain, else 150m)")
    add("--home", "FOLDER", "state folder (default: ~/.sn38/NETWORK-NETUID/WALLET-HOTKEY)", type=Path)
    add("--data.path", "FOLDER", "folder of the run's text or token shards", dest="data_path", type=Path)
    add("--device", "DEVICE", "torch device (default: cuda where there is one, else cpu)")
    add("--threads", "N", "torch threads (default: torch's choice)", type=int, default=0)
    kept = NodeConfig.checkpoints
    add("--checkpoints", "N", f"local checkpoints to keep (default: {kept})", type=int, default=kept)
    add("--swarm.host", "IP", "address to listen on (default: 127.0.0.1 on a local chain, else all)", dest="swarm_host")
    add("--swarm.port", "PORT", "TCP port (default: that of the last start)", dest="swarm_port", type=int, default=0)
    add("--swarm.announce", "MULTIADDR", "public address, repeatable", dest="announce", action="append", default=[])
    flags.add_argument(
        "--swarm.unreachable", dest="unreachable", action="store_true",
        help="nobody can dial this machine (NAT without a forwarded port): publish no address, dial all others",
    )  # fmt: skip
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
    if args.checkpoints < 1:
        raise UserError(f"--checkpoints must be 1 or more, got {args.checkpoints}")
    if args.unreachable and args.announce:
        raise UserError("--swarm.unreachable publishes no address: leave --swarm.announce out, or the other")
    if not 0 <= args.swarm_port <= 65535:
        raise UserError(f"--swarm.port must be a TCP port, got {args.swarm_port}")
    return NodeConfig(
        home=home.expanduser(),
        device=args.device or "",
        threads=args.threads,
        wandb="disabled" if args.no_wandb else _wandb_mode(),
        host=args.swarm_host or ("127.0.0.1" if _is_local(flags.network) else "0.0.0.0"),
        port=args.swarm_port,
        announce=tuple(args.announce),
        reachable=not args.unreachable,
        data_path=args.data_path,
        checkpoints=args.checkpoints,
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

    node = replace(node, device=_set_up_torch(node))
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


def _set_up_torch(node: NodeConfig) -> str:
    """Apply the thread count and choose the device. Raises UserError for one that is not there."""
    import torch

    if node.threads:
        torch.set_num_threads(node.threads)
    name = node.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"--device {name} cannot be used ({why}); leave the flag out, or give cpu") from error
    return name


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
