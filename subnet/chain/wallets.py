"""Development wallets and the transactions that set up a subnet: for demos and tests, never for real value.

Unencrypted keys in a folder of btcli's layout, and the newcomer's loop (fund, register a subnet, start it, register
neurons, stake, change settings) as plain functions. They run alike on the embedded chain and the official localnet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bittensor as bt
import bittensor_core as core

from subnet.chain.client import Chain
from subnet.chain.keys import Hotkey, hotkey_from_uri


@dataclass(frozen=True)
class DevWallet:
    """A coldkey and one hotkey, both unlocked. Has the shape the SDK wants of a wallet."""

    coldkey: core.Keypair
    hotkey: core.Keypair

    @property
    def coldkeypub(self) -> core.Keypair:
        return self.coldkey

    @property
    def coldkey_ss58(self) -> str:
        return str(self.coldkey.ss58_address)

    @property
    def hotkey_ss58(self) -> str:
        return str(self.hotkey.ss58_address)

    @property
    def signer(self) -> Hotkey:
        """The hotkey as the neurons use it."""
        return Hotkey(self.hotkey)


def alice() -> DevWallet:
    """The account every development chain funds at genesis and lets use sudo."""
    keypair = hotkey_from_uri("//Alice").keypair
    return DevWallet(keypair, keypair)


def create_wallet(folder: Path, name: str, hotkey: str = "default") -> DevWallet:
    """Wallet `name` with hotkey `hotkey` under `folder`, created unencrypted where it does not exist yet.

    An existing wallet is used as it is, so a demo keeps its accounts from one run to the next.
    """
    wallet = bt.Wallet(name, hotkey, str(folder))
    if not wallet.coldkey_file.exists_on_device():
        wallet.create_new_coldkey(use_password=False, suppress=True)
    if not wallet.hotkey_file.exists_on_device():
        wallet.create_new_hotkey(use_password=False, suppress=True)
    return DevWallet(wallet.coldkey, wallet.hotkey)


async def fund(chain: Chain, source: DevWallet, dest_ss58: str, tao: float) -> None:
    """Transfer `tao` from `source`'s coldkey. Raises ChainRefused."""
    await chain.execute(bt.Transfer(dest_ss58=dest_ss58, amount_tao=tao), source)


async def register_subnet(chain: Chain, owner: DevWallet) -> int:
    """Create a subnet owned by `owner`, whose hotkey becomes its uid 0; returns its netuid. Raises ChainRefused."""
    data = await chain.execute(bt.RegisterSubnet(hotkey_ss58=owner.hotkey_ss58), owner)
    return int(data["netuid"])


async def start_call(chain: Chain, owner: DevWallet, netuid: int) -> None:
    """Start a subnet: from now on it emits, and alpha can be staked. Raises ChainRefused."""
    await chain.execute(bt.StartCall(netuid=netuid), owner)


async def burned_register(chain: Chain, wallet: DevWallet, netuid: int) -> int:
    """Register the wallet's hotkey as a neuron, paid by its coldkey; returns its uid. Raises ChainRefused.

    Sent in the clear, unlike the SDK's own intent, which insists on the mempool encryption that matters only where
    somebody watches the mempool.
    """
    call = bt.calls.SubtensorModule.burned_register(netuid=netuid, hotkey=wallet.hotkey_ss58)
    await chain.submit(call, wallet, "coldkey")
    uid = (await chain.metagraph(netuid)).uid_of(wallet.hotkey_ss58)
    assert uid is not None, "registered, but not in the metagraph"
    return uid


async def add_stake(chain: Chain, wallet: DevWallet, netuid: int, tao: float, hotkey_ss58: str | None = None) -> None:
    """Stake `tao` on a hotkey (default: the wallet's own) at whatever price the pool gives. Raises ChainRefused."""
    target = hotkey_ss58 or wallet.hotkey_ss58
    intent = bt.AddStake(hotkey_ss58=target, netuid=netuid, amount_tao=tao, slippage_protection=False)
    await chain.execute(intent, wallet)


async def sudo_set(chain: Chain, sudo: DevWallet, setting: str, **values: Any) -> None:
    """Change a setting as root: `sudo_set(chain, alice(), "sudo_set_tempo", netuid=2, tempo=20)`.

    setting: a call of the chain's AdminUtils; values: its arguments. Raises ChainRefused, ValueError (no such call).
    """
    builder = getattr(bt.calls.AdminUtils, setting, None)
    if builder is None:
        raise ValueError(f"AdminUtils has no call {setting!r}")
    inner = await chain.compose(builder(**values))
    await chain.submit(bt.calls.Sudo.sudo(call=inner), sudo, "coldkey")
