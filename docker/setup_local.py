"""Prepare a development chain for compose.local.yml: wallets, money from //Alice, a subnet, stake for the validator.

    python docker/setup_local.py ws://127.0.0.1:9944

Safe to repeat: what exists already is left as it is. Not for a chain with real value: its keys are unencrypted.
"""

import asyncio
import sys
from pathlib import Path

from subnet.chain import wallets
from subnet.chain.client import Chain
from subnet.chain.errors import NoSuchSubnet
from subnet.errors import UserError

NETUID = 2
WALLETS = Path.home() / ".bittensor" / "wallets"
NEURONS = ("validator", "miner1", "miner2")
PURSE, STAKE = 5_000.0, 1_000.0


async def prepare(network: str) -> None:
    chain = await Chain.connect(network)
    try:
        owner, *neurons = (wallets.create_wallet(WALLETS, name) for name in ("owner", *NEURONS))
        for wallet in (owner, *neurons):
            if await chain.balance(wallet.coldkey_ss58) < PURSE / 4:
                await wallets.fund(chain, wallets.alice(), wallet.coldkey_ss58, PURSE)
        try:
            graph = await chain.metagraph(NETUID)
        except NoSuchSubnet:
            await wallets.register_subnet(chain, owner)
            graph = await chain.metagraph(NETUID)
        if graph.owner_coldkey != owner.coldkey_ss58:
            raise UserError(f"subnet {NETUID} belongs to somebody else: start a fresh chain (docker compose down -v)")
        if not await chain.started(NETUID):
            await wallets.start_call(chain, owner, NETUID)
        for wallet in neurons:
            if graph.uid_of(wallet.hotkey_ss58) is None:
                await wallets.burned_register(chain, wallet, NETUID)
        graph = await chain.metagraph(NETUID)
        validator = neurons[0]
        if graph.by_hotkey[validator.hotkey_ss58].stake <= 0:
            await wallets.add_stake(chain, validator, NETUID, STAKE)
    finally:
        await chain.close()
    print(f"subnet {NETUID} on {network} is ready: {', '.join(NEURONS)} are registered, the validator has stake")


if __name__ == "__main__":
    try:
        asyncio.run(prepare(sys.argv[1]))
    except UserError as error:
        sys.exit(f"error: {error}")
