"""The metagraph: a subnet's whole state in one answer, with a column per neuron property.

As the Subtensor computes it since ranks, trust and pruning scores were dropped there: those three columns are
empty.
"""

from __future__ import annotations

from typing import Any

from subnet.localnet.ledger import Pallet
from subnet.localnet.metadata.api_types import METAGRAPH_FIELDS, SELECTIVE_EXTRA_FIELDS
from subnet.localnet.metadata.pallet import split_commas
from subnet.localnet.pallets import mechanisms, neurons, stake, subnets
from subnet.localnet.runtime_api import Call, api
from subnet.localnet.runtime_api.subnets import clock_fields, hyperparameter_fields, name, pool_fields

NO_AXON = {
    "block": 0,
    "version": 0,
    "ip": 0,
    "port": 0,
    "ip_type": 0,
    "protocol": 0,
    "placeholder1": 0,
    "placeholder2": 0,
}


def stakes(sub: Pallet, netuid: int, hotkeys: list[str]) -> dict[str, list[int]]:
    """rao per uid: alpha, root TAO, and alpha plus weighted TAO."""
    weight = sub.get("TaoWeight")
    alpha = [stake.on_hotkey(sub, hotkey, netuid) for hotkey in hotkeys]
    tao = [stake.on_hotkey(sub, hotkey, stake.ROOT_NETUID) for hotkey in hotkeys]
    total = [own + root * weight // (2**64 - 1) for own, root in zip(alpha, tao, strict=True)]
    return {"alpha_stake": alpha, "tao_stake": tao, "total_stake": total}


def columns(sub: Pallet, netuid: int, hotkeys: list[str]) -> dict[str, list[Any]]:
    """What epochs and registrations wrote, by uid."""
    return {
        "hotkeys": hotkeys,
        "coldkeys": [sub.get("Owner", hotkey) for hotkey in hotkeys],
        "active": sub.get("Active", netuid),
        "validator_permit": sub.get("ValidatorPermit", netuid),
        "pruning_score": [],
        "last_update": sub.get("LastUpdate", netuid),
        "emission": sub.get("Emission", netuid),
        "dividends": sub.get("Dividends", netuid),
        "incentives": sub.get("Incentive", netuid),
        "consensus": sub.get("Consensus", netuid),
        "trust": [],
        "rank": [],
        "block_at_registration": [sub.get("BlockAtRegistration", netuid, uid) for uid in range(len(hotkeys))],
        **stakes(sub, netuid, hotkeys),
    }


@api("SubnetInfoRuntimeApi_get_metagraph")
def metagraph(call: Call, netuid: int) -> dict[str, Any] | None:
    sub = call.sub
    if not subnets.exists(sub, netuid):
        return None
    hotkeys = neurons.hotkeys(sub, netuid)
    neuron_columns = columns(sub, netuid, hotkeys)
    return {
        "netuid": netuid,
        "name": list(name(sub, netuid).encode()),
        "symbol": list(sub.get("TokenSymbol", netuid).encode()),
        "identity": sub.get("SubnetIdentitiesV3", netuid),
        "network_registered_at": sub.get("NetworkRegisteredAt", netuid),
        "owner_hotkey": sub.get("SubnetOwnerHotkey", netuid),
        "owner_coldkey": sub.get("SubnetOwner", netuid),
        "block": call.block,
        **clock_fields(call, netuid),
        "subnet_emission": 0,
        **pool_fields(sub, netuid),
        **hyperparameter_fields(sub, netuid),
        "num_uids": len(hotkeys),
        "max_uids": sub.get("MaxAllowedUids", netuid),
        "burn": sub.get("Burn", netuid),
        "pow_registration_allowed": False,
        **neuron_columns,
        "identities": [sub.get("IdentitiesV2", coldkey) for coldkey in neuron_columns["coldkeys"]],
        "axons": [sub.get("Axons", netuid, hotkey) or NO_AXON for hotkey in hotkeys],
        "tao_dividends_per_hotkey": [(hotkey, 0) for hotkey in hotkeys],
        "alpha_dividends_per_hotkey": [
            (hotkey, sub.get("AlphaDividendsPerSubnet", netuid, hotkey)) for hotkey in hotkeys
        ],
    }


@api("SubnetInfoRuntimeApi_get_all_metagraphs")
def all_metagraphs(call: Call) -> list[Any]:
    return [metagraph(call, netuid) for netuid in subnets.netuids(call.sub)]


@api("SubnetInfoRuntimeApi_get_mechagraph")
def mechagraph(call: Call, netuid: int, mecid: int) -> dict[str, Any] | None:
    """The subnet's metagraph with the mechanism's own columns, and its index for a netuid."""
    if not mechanisms.exists(call.sub, netuid, mecid):
        return None
    whole = metagraph(call, netuid)
    return whole and {**whole, "netuid": mechanisms.index(netuid, mecid), **_own(call, netuid, mecid)}


def _own(call: Call, netuid: int, mecid: int) -> dict[str, list[int]]:
    incentives = call.sub.get("Incentive", mechanisms.index(netuid, mecid))
    return {"last_update": mechanisms.last_update(call.sub, netuid, mecid), "incentives": incentives}


@api("SubnetInfoRuntimeApi_get_all_mechagraphs")
def all_mechagraphs(call: Call) -> list[Any]:
    sub = call.sub
    counts = {netuid: sub.get("MechanismCountCurrent", netuid) for netuid in subnets.netuids(sub)}
    return [mechagraph(call, netuid, mecid) for netuid, count in counts.items() for mecid in range(count)]


SELECTABLE = [
    field.partition(":")[0].strip() for field in split_commas(f"{METAGRAPH_FIELDS}, {SELECTIVE_EXTRA_FIELDS}")
]
"""Columns by the index a selective query names them with."""


@api("SubnetInfoRuntimeApi_get_selective_metagraph")
def selective_metagraph(call: Call, netuid: int, indexes: list[int]) -> dict[str, Any] | None:
    whole = metagraph(call, netuid)
    if whole is None:
        return None
    commitments = call.ledger.pallet("Commitments")
    whole["validators"] = [uid for uid, permit in enumerate(whole["validator_permit"]) if permit]
    whole["commitments"] = [(who, list(_plain(info))) for who, info in commitments.items("CommitmentOf", netuid)]
    wanted = {SELECTABLE[index] for index in indexes if index < len(SELECTABLE)} | {"netuid"}
    return {column: whole[column] if column in wanted else None for column in SELECTABLE}


def _plain(registration: dict[str, Any]) -> bytes:
    """The bytes of a commitment's raw fields, in order."""
    found = b""
    for field in registration["info"]["fields"]:
        for kind, payload in field.items() if isinstance(field, dict) else ():
            if kind.startswith("Raw") or kind == "BigRaw":
                found += bytes.fromhex(payload[2:]) if payload.startswith("0x") else payload.encode()
    return found


@api("SubnetInfoRuntimeApi_get_selective_mechagraph")
def selective_mechagraph(call: Call, netuid: int, mecid: int, indexes: list[int]) -> dict[str, Any] | None:
    if not mechanisms.exists(call.sub, netuid, mecid):
        return None
    chosen, own = selective_metagraph(call, netuid, indexes), _own(call, netuid, mecid)
    return chosen and {**chosen, **{column: own[column] for column in own if chosen[column] is not None}}


@api("SubnetInfoRuntimeApi_get_subnet_state")
def subnet_state(call: Call, netuid: int) -> dict[str, Any] | None:
    if not subnets.exists(call.sub, netuid):
        return None
    hotkeys = neurons.hotkeys(call.sub, netuid)
    return {"netuid": netuid, **columns(call.sub, netuid, hotkeys), "emission_history": []}
