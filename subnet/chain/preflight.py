"""Checks before a neuron starts: everything a user can get wrong about the chain, each as one line with its remedy.

Decides nothing later on: a neuron that is replaced or loses its permit while it runs notices that itself.
"""

from __future__ import annotations

import logging

from subnet.chain.client import Chain
from subnet.chain.metagraph import Metagraph
from subnet.errors import UserError

log = logging.getLogger(__name__)

MINER = "miner"
VALIDATOR = "validator"


async def preflight(chain: Chain, netuid: int, hotkey: str, role: str, wallet: str = "-w <wallet> -H <hotkey>") -> None:
    """Check that the subnet runs and that `hotkey` (ss58) may act in it as `role`, miner or validator.

    wallet: btcli's flags for the hotkey's wallet (`ChainFlags.btcli_wallet`), for the commands in messages.

    Raises UserError (NoSuchSubnet and ChainUnreachable among them).
    """
    metagraph = await chain.metagraph(netuid)
    check(metagraph, hotkey, role, f"{wallet} --network {chain.network}")
    if not await chain.started(netuid):
        raise UserError(
            f"subnet {netuid} on {chain.network} has not been started, nobody earns in it: its owner must run "
            f"`btcli tx start-call --netuid {netuid} --network {chain.network}`"
        )


def check(metagraph: Metagraph, hotkey: str, role: str, flags: str) -> None:
    """The part of `preflight` that needs only the metagraph; `flags` as a btcli command takes them.

    A validator needs a permit for its weights to be accepted, except the owner's hotkey. Permits are given at each
    epoch to the highest stakes: one that has stake may start and wait for its permit, one without stake never gets it.
    """
    netuid = metagraph.netuid
    row = metagraph.by_hotkey.get(hotkey)
    if row is None:
        raise UserError(
            f"hotkey {hotkey} is not registered on subnet {netuid}: "
            f"register it with `btcli tx burned-register --netuid {netuid} {flags}`"
        )
    if role != VALIDATOR or row.permit or hotkey == metagraph.owner_hotkey:
        return
    if row.stake == 0:
        raise UserError(
            f"validator {hotkey} has no stake on subnet {netuid}, so the chain will refuse its weights: add some with "
            f"`btcli tx add-stake --netuid {netuid} --hotkey {hotkey} --amount-tao 10 {flags}`"
        )
    log.warning(
        "validator %s has no permit yet: its weights are refused until an epoch (every %d blocks) ranks its stake of "
        "%.2f high enough",
        hotkey,
        metagraph.tempo,
        row.stake,
    )
