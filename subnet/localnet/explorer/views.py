"""What the explorer's page is fed: the chain's state as JSON, one function per view.

Pure functions of a chain and its history at the head block. Amounts are rao, shares 1/65535 and times Unix
milliseconds, as on chain; the page puts them into words. Names that strangers chose go out as they are: the page
shows them as text only.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from bittensor_core import Keypair, ss58_decode

from subnet.localnet.chain import Chain, Header, hex0x
from subnet.localnet.explorer.history import History, block_time_ms, brief, events_of, records
from subnet.localnet.pallets import neurons, stake, subnets
from subnet.localnet.pallets.stake import RAO
from subnet.localnet.runtime import VERSION
from subnet.localnet.runtime_api.metagraph import stakes
from subnet.localnet.runtime_api.subnets import hyperparameter_fields, name, pool_fields
from subnet.localnet.schedule import next_epoch
from subnet.localnet.store import StoredBlock

LATEST = 12
"""Blocks and extrinsics on the first page."""
MAX_ACCOUNTS = 500
MAX_HISTORY = 200
"""Extrinsics of one account."""
DEVELOPERS = ("Alice", "Alice_hk", "Bob", "Charlie", "Dave", "Eve", "Ferdie")
DEVELOPER_KEYS = {Keypair.from_uri(f"//{who}").ss58_address: f"//{who}" for who in DEVELOPERS}


class NotFound(LookupError):
    """No such block, subnet or account; the message says which."""


@dataclass(frozen=True)
class Source:
    chain: Chain
    history: History
    block_time: float
    """Seconds."""


def overview(source: Source) -> dict[str, Any]:
    """The chain at a glance: head, subnets, last blocks, last extrinsics."""
    chain = source.chain
    sub, head = chain.ledger.pallet("SubtensorModule"), chain.head.number
    latest = [block for number in range(head, max(head - LATEST, -1), -1) if (block := chain.store.block(number))]
    newest = list(source.history.records)[: -LATEST - 1 : -1]
    return {
        **_head(source),
        "hash": hex0x(chain.head.hash),
        "genesis": hex0x(chain.genesis),
        "spec": VERSION["specVersion"],
        "issuance": sub.get("TotalIssuance"),
        "staked": sub.get("TotalStake"),
        "waiting": sum(1 for _ in chain.mempool),
        "subnets": [_subnet(source, netuid) for netuid in subnets.netuids(sub)],
        "blocks": [_block_line(chain, block) for block in latest],
        "extrinsics": [record.json() for record in newest],
    }


def subnet(source: Source, netuid: int) -> dict[str, Any]:
    """One subnet: market, clock, metagraph, past epochs and parameters."""
    chain = source.chain
    sub = chain.ledger.pallet("SubtensorModule")
    if not subnets.exists(sub, netuid):
        raise NotFound(f"this chain has no subnet {netuid}")
    identity = sub.get("SubnetIdentitiesV3", netuid)
    return {
        **_head(source),
        **_subnet(source, netuid),
        "identity": brief(identity) if identity else None,
        "registered_at": sub.get("NetworkRegisteredAt", netuid),
        "neurons": _neurons(chain, netuid),
        "epochs": _epochs(source, netuid),
        "parameters": hyperparameter_fields(sub, netuid),
    }


def weights(source: Source, netuid: int) -> dict[str, Any]:
    """Who weighs whom: (validator's uid, [(uid, weight of 65535)]) of everybody who set weights."""
    sub = source.chain.ledger.pallet("SubtensorModule")
    if not subnets.exists(sub, netuid):
        raise NotFound(f"this chain has no subnet {netuid}")
    count = sub.get("SubnetworkN", netuid)
    rows = [(uid, sub.get("Weights", netuid, uid)) for uid in range(count)]
    return {**_head(source), "netuid": netuid, "count": count, "rows": [row for row in rows if row[1]]}


def accounts(source: Source) -> dict[str, Any]:
    """Everybody with money, the richest first."""
    chain = source.chain
    sub = chain.ledger.pallet("SubtensorModule")
    price = {netuid: stake.price_rao(sub, netuid) for netuid in subnets.netuids(sub)}
    staked: dict[str, int] = {}
    for (_, coldkey, netuid), share in sub.items("AlphaV2"):
        value = share["mantissa"] * 10 ** share["exponent"] * price.get(netuid, 0) // RAO
        staked[coldkey] = staked.get(coldkey, 0) + value
    free = {who: info["data"]["free"] for who, info in chain.ledger.pallet("System").items("Account")}
    rows = [
        {"account": who, "free": free.get(who, 0), "staked": staked.get(who, 0)} for who in free.keys() | staked.keys()
    ]
    rows.sort(key=lambda row: (-row["free"] - row["staked"], row["account"]))
    return {**_head(source), "count": len(rows), "accounts": rows[:MAX_ACCOUNTS]}


def account(source: Source, who: str) -> dict[str, Any]:
    """One account, as coldkey and as hotkey: money, stake, registrations, history."""
    try:
        ss58_decode(who)
    except ValueError:
        raise NotFound(f"{who} is not an SS58 address") from None
    ledger = source.chain.ledger
    sub, info = ledger.pallet("SubtensorModule"), ledger.get("System", "Account", who)
    return {
        **_head(source),
        "account": who,
        "free": info["data"]["free"],
        "nonce": info["nonce"],
        "owner": sub.get("Owner", who) if sub.has("Owner", who) else None,
        "hotkeys": sub.get("OwnedHotkeys", who),
        "stake": _positions(source, who),
        "registrations": [
            {
                "netuid": netuid,
                "name": name(sub, netuid),
                **_neurons(source.chain, netuid)[sub.get("Uids", netuid, who)],
            }
            for netuid, member in sub.items("IsNetworkMember", who)
            if member
        ],
        "pay": _pay(source, who),
        "extrinsics": [record.json() for record in source.history.of(who, MAX_HISTORY)],
    }


def block(source: Source, number: int) -> dict[str, Any]:
    """One block with its extrinsics, and what it did by itself."""
    chain = source.chain
    found = chain.store.block(number) if 0 <= number <= chain.head.number else None
    if found is None:
        raise NotFound(f"this chain has no block {number}, or no longer")
    events = events_of(chain, number)
    return {
        **_head(source),
        "header": Header.of(found).json(),
        **_block_line(chain, found),
        "extrinsics": [record.json() for record in records(chain, found)],
        "events": None
        if events is None
        else [
            {"name": f"{event['module_id']}.{event['event_id']}", "attributes": brief(event["attributes"])}
            for event in events
            if not event["extrinsic_idx"] and event["event_id"] != "ExtrinsicSuccess"
        ],
    }


def _head(source: Source) -> dict[str, Any]:
    chain = source.chain
    return {
        "block": chain.head.number,
        "time": block_time_ms(chain, chain.head),
        "block_time": source.block_time,
        "labels": _labels(source),
    }


def _labels(source: Source) -> dict[str, str]:
    """Names of the accounts that everybody on a development chain knows."""
    sub = source.chain.ledger.pallet("SubtensorModule")
    pools = {stake.subnet_account(netuid): f"pool of subnet {netuid}" for netuid in subnets.netuids(sub) if netuid}
    return {**DEVELOPER_KEYS, **pools}


def _block_line(chain: Chain, found: StoredBlock) -> dict[str, Any]:
    return {
        "number": found.number,
        "hash": hex0x(found.hash),
        "time": block_time_ms(chain, found),
        "extrinsics": max(len(found.body) - 1, 0),
        "bytes": sum(map(len, found.body)),
    }


def _subnet(source: Source, netuid: int) -> dict[str, Any]:
    sub = source.chain.ledger.pallet("SubtensorModule")
    pool = {key: value for key, value in pool_fields(sub, netuid).items() if key != "moving_price"}
    return {
        "netuid": netuid,
        "name": name(sub, netuid),
        "symbol": sub.get("TokenSymbol", netuid),
        "owner_coldkey": sub.get("SubnetOwner", netuid),
        "owner_hotkey": sub.get("SubnetOwnerHotkey", netuid),
        "price": stake.price_rao(sub, netuid),
        "started": bool(sub.get("SubtokenEnabled", netuid)),
        **pool,
        "neurons_count": sub.get("SubnetworkN", netuid),
        "max_uids": sub.get("MaxAllowedUids", netuid),
        "burn": sub.get("Burn", netuid),
        "tempo": sub.get("Tempo", netuid),
        "last_epoch": sub.get("LastEpochBlock", netuid),
        "next_epoch": next_epoch(sub, netuid),
        "paid": sum(sub.get("Emission", netuid)),
        "last_update": max(sub.get("LastUpdate", netuid), default=0),
    }


def _neurons(chain: Chain, netuid: int) -> list[dict[str, Any]]:
    """By uid."""
    sub = chain.ledger.pallet("SubtensorModule")
    hotkeys = neurons.hotkeys(sub, netuid)
    columns: dict[str, list[Any]] = {
        "hotkey": hotkeys,
        "coldkey": [sub.get("Owner", hotkey) for hotkey in hotkeys],
        **{key: sub.get(item, netuid) for key, item in COLUMNS.items()},
        "registered_at": [sub.get("BlockAtRegistration", netuid, uid) for uid in range(len(hotkeys))],
        "axon": [_axon(sub.get("Axons", netuid, hotkey)) for hotkey in hotkeys],
        **stakes(sub, netuid, hotkeys),
    }
    return [{"uid": uid, **{key: column[uid] for key, column in columns.items()}} for uid in range(len(hotkeys))]


COLUMNS = {
    "active": "Active",
    "permit": "ValidatorPermit",
    "validator_trust": "ValidatorTrust",
    "consensus": "Consensus",
    "incentive": "Incentive",
    "dividends": "Dividends",
    "emission": "Emission",
    "last_update": "LastUpdate",
}


def _axon(info: dict[str, Any] | None) -> str | None:
    """Address and port, or None where none is served."""
    if not info or not info["port"]:
        return None
    number, version = info["ip"], info["ip_type"]
    shown = str(IPv4Address(number)) if version == 4 and number < 1 << 32 else f"[{IPv6Address(number)}]"
    return f"{shown}:{info['port']}"


def _epochs(source: Source, netuid: int) -> list[dict[str, Any]]:
    """Oldest first; `emission` is that of the present uids, 0 before a hotkey had its seat."""
    sub = source.chain.ledger.pallet("SubtensorModule")
    hotkeys = neurons.hotkeys(sub, netuid)
    found = []
    for epoch in source.history.epochs.get(netuid, ()):
        seat = {hotkey: uid for uid, hotkey in enumerate(epoch.hotkeys)}
        uids = [seat.get(hotkey) for hotkey in hotkeys]
        found.append(
            {
                "block": epoch.block,
                "time": epoch.time,
                "paid": sum(epoch.emission),
                "emission": [0 if uid is None else epoch.emission[uid] for uid in uids],
            }
        )
    return found


def _positions(source: Source, who: str) -> list[dict[str, Any]]:
    """The account's own stake as a coldkey, and all stake on it as a hotkey."""
    sub = source.chain.ledger.pallet("SubtensorModule")
    found = [
        {"hotkey": hotkey, "coldkey": who, "netuid": netuid, "alpha": stake.held(sub, hotkey, who, netuid)}
        for hotkey in sub.get("StakingHotkeys", who)
        for netuid, _ in sub.items("AlphaV2", hotkey, who)
    ]
    found += [
        {"hotkey": who, "coldkey": coldkey, "netuid": netuid, "alpha": stake.held(sub, who, coldkey, netuid)}
        for (coldkey, netuid), _ in sub.items("AlphaV2", who)
        if coldkey != who
    ]
    return [
        {
            **item,
            "name": name(sub, item["netuid"]),
            "value": item["alpha"] * stake.price_rao(sub, item["netuid"]) // RAO,
        }
        for item in found
    ]


def _pay(source: Source, who: str) -> list[dict[str, Any]]:
    """What the account got as a hotkey, newest epoch first."""
    found = [
        {"netuid": netuid, "block": epoch.block, "time": epoch.time, "emission": epoch.emission[uid],
         "incentive": epoch.incentive[uid], "dividends": epoch.dividends[uid]}
        for netuid, epochs in source.history.epochs.items()
        for epoch in epochs
        if who in epoch.hotkeys
        for uid in [epoch.hotkeys.index(who)]
    ]  # fmt: skip
    return sorted(found, key=lambda item: -item["block"])
