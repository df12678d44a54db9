"""The first block: //Alice's TAO and sudo key, root and subnet 1.

The genesis hash commits to the metadata, because the SDK keeps metadata by genesis hash: chains that differ in
either must not be mistaken for one another. Amounts and subnets as in the Subtensor's own localnet chain
specification.
"""

from __future__ import annotations

import json
from hashlib import blake2b

from bittensor_core import Keypair

from subnet.localnet import shield
from subnet.localnet.chain import Chain, make_block
from subnet.localnet.dispatch import Context, Rules
from subnet.localnet.errors import LocalnetError
from subnet.localnet.ledger import Codec, Ledger
from subnet.localnet.metadata import SPEC_VERSION
from subnet.localnet.pallets import balances, stake, subnets
from subnet.localnet.runtime import ChainRuntime
from subnet.localnet.state import State
from subnet.localnet.store import Store

TAO = 1_000_000_000
"""rao."""

ALICE_BALANCE = 1_000_000 * TAO

DEFAULT_BLOCK_TIME = 0.25

ROOT_SEATS = 64
LOCK_REDUCTION = 100
"""Blocks in which the price of a subnet, doubled by each registration, falls by as much again; 100,800 on finney."""
FIRST_TEMPO = 100
FIRST_POOL = 10 * TAO
"""TAO in the pool of subnet 1, rao; as much alpha."""


def open_chain(store: Store, block_time: float | None, rules: Rules) -> tuple[Chain, float]:
    """The chain in the store, or a new one; and its block time in seconds (None: the chain's own, or the default).

    Raises:
        LocalnetError: the stored chain has another block time, or another version's metadata.
    """
    stored = store.meta("chain")
    identity = json.loads(stored) if stored else {}
    chosen = block_time or identity.get("block_time", DEFAULT_BLOCK_TIME)
    runtime = ChainRuntime.build(round(chosen * 1000))
    wanted = {"block_time": chosen, "metadata": blake2b(runtime.v15, digest_size=16).hexdigest()}
    if store.empty:
        _create(store, runtime, wanted)
    elif identity["block_time"] != chosen:
        raise LocalnetError(
            f"the chain in {store.folder} has a block time of {identity['block_time']} s, not {chosen} s; "
            f"pass --block-time {identity['block_time']}, or choose another folder with --state"
        )
    elif identity["metadata"] != wanted["metadata"]:
        raise LocalnetError(
            f"the chain in {store.folder} was made by another version of this program; "
            "remove the folder to begin anew, or choose another with --state"
        )
    return Chain(store, runtime, rules), chosen


def _create(store: Store, runtime: ChainRuntime, identity: dict[str, object]) -> None:
    state = State()
    ledger = Ledger(Codec(runtime.codec), state)
    _populate(Context(ledger, state, Rules(), block=0))
    state.seal(0)
    seed = blake2b(state.root + runtime.v15 + SPEC_VERSION.to_bytes(4, "little"), digest_size=32).digest()
    # The parent of a genesis block is zero, so what else it commits to goes into its extrinsics root.
    store.create(make_block(bytes(32), 0, state.root, [seed]), state, {"chain": json.dumps(identity).encode()})


def _populate(ctx: Context) -> None:
    alice = Keypair.from_uri("//Alice").ss58_address
    alice_hotkey = Keypair.from_uri("//Alice_hk").ss58_address
    ctx.ledger.pallet("Sudo").put("Key", alice)
    balances.mint(ctx, alice, ALICE_BALANCE)
    for name in ("CurrentKey", "NextKey"):
        ctx.ledger.pallet("MevShield").put(name, shield.public_key())
    # A developer changes things often and waits for nothing.
    for item in ("NetworkRateLimit", "AdminFreezeWindow", "OwnerHyperparamRateLimit", "TxDelegateTakeRateLimit"):
        ctx.sub.put(item, 0)
    ctx.sub.put("NetworkLockReductionInterval", LOCK_REDUCTION)
    for netuid in (stake.ROOT_NETUID, 1):
        subnets.initialize(ctx, netuid, FIRST_TEMPO)
        ctx.sub.put("SubnetOwner", netuid, alice)
        ctx.sub.put("SubnetOwnerHotkey", netuid, alice_hotkey)
    for item in ("MaxAllowedUids", "MaxAllowedValidators"):
        ctx.sub.put(item, stake.ROOT_NETUID, ROOT_SEATS)
    ctx.sub.put("SubtokenEnabled", stake.ROOT_NETUID, True)
    balances.mint(ctx, stake.subnet_account(1), FIRST_POOL)
    subnets.open_pool(ctx, 1, alice, alice_hotkey, FIRST_POOL, FIRST_POOL)
