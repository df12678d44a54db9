"""Command-line flags every program that talks to the chain has, in the ecosystem's spelling.

Flag, then environment (the SDK's own variables), then default. Reads nothing from the chain and validates no names.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from subnet.chain.keys import DEFAULT_WALLET_PATH

DEFAULT_NETUID = 38


@dataclass(frozen=True)
class ChainFlags:
    """Which subnet of which chain, and which hotkey."""

    netuid: int
    network: str
    """finney, test, local, or a ws:// or wss:// URL."""
    wallet_name: str
    wallet_hotkey: str
    wallet_path: str
    """Folder of wallets; ~ is the home folder."""

    @classmethod
    def of(cls, args: argparse.Namespace) -> ChainFlags:
        """The flags of a parser that `add_chain_flags` extended."""
        return cls(args.netuid, args.network, args.wallet_name, args.wallet_hotkey, args.wallet_path)

    @property
    def btcli_wallet(self) -> str:
        """The same wallet as btcli's flags, for messages that name a command."""
        path = "" if self.wallet_path == DEFAULT_WALLET_PATH else f" --wallet-path {self.wallet_path}"
        return f"-w {self.wallet_name} -H {self.wallet_hotkey}{path}"


def add_chain_flags(parser: argparse.ArgumentParser) -> None:
    """Add --netuid, --subtensor.network and the --wallet.* flags; read them back with `ChainFlags.of`."""
    env = os.environ
    group = parser.add_argument_group("chain")
    group.add_argument("--netuid", type=_netuid, default=DEFAULT_NETUID, help="subnet (default: %(default)s)")
    group.add_argument(
        "--subtensor.network",
        dest="network",
        metavar="NETWORK",
        default=env.get("BT_NETWORK", "finney"),
        help="finney, test, local, or a ws:// URL (BT_NETWORK; default: %(default)s)",
    )
    group.add_argument(
        "--wallet.name",
        dest="wallet_name",
        metavar="NAME",
        default=env.get("BT_WALLET", "default"),
        help="wallet (BT_WALLET; default: %(default)s)",
    )
    group.add_argument(
        "--wallet.hotkey",
        dest="wallet_hotkey",
        metavar="NAME",
        default=env.get("BT_WALLET_HOTKEY", "default"),
        help="hotkey within the wallet (BT_WALLET_HOTKEY; default: %(default)s)",
    )
    group.add_argument(
        "--wallet.path",
        dest="wallet_path",
        metavar="FOLDER",
        default=env.get("BT_WALLET_PATH", DEFAULT_WALLET_PATH),
        help="folder of wallets (BT_WALLET_PATH; default: %(default)s)",
    )


def _netuid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a subnet: 1 to 4095")
    return int(text)
