"""Subnets as clients ask for them: infos, hyperparameters, prices, and what the next one costs."""

from __future__ import annotations

from typing import Any

from subnet.localnet.consensus import pool as market
from subnet.localnet.ledger import Pallet
from subnet.localnet.pallets import stake, subnets
from subnet.localnet.runtime_api import Call, api
from subnet.localnet.schedule import activity_cutoff, next_epoch


def name(sub: Pallet, netuid: int) -> str:
    identity = sub.get("SubnetIdentitiesV3", netuid)
    if identity and identity["subnet_name"]:
        return identity["subnet_name"]
    return "root" if netuid == stake.ROOT_NETUID else f"subnet {netuid}"


def pool_fields(sub: Pallet, netuid: int) -> dict[str, Any]:
    """The market's part of metagraph and dynamic info."""
    return {
        "alpha_in": sub.get("SubnetAlphaIn", netuid),
        "alpha_out": sub.get("SubnetAlphaOut", netuid),
        "tao_in": sub.get("SubnetTAO", netuid),
        "alpha_out_emission": sub.get("SubnetAlphaOutEmission", netuid),
        "alpha_in_emission": sub.get("SubnetAlphaInEmission", netuid),
        "tao_in_emission": sub.get("SubnetTaoInEmission", netuid),
        "pending_alpha_emission": sub.get("PendingValidatorEmission", netuid)
        + sub.get("PendingServerEmission", netuid),
        "pending_root_emission": 0,
        "subnet_volume": sub.get("SubnetVolume", netuid),
        "moving_price": sub.get("SubnetMovingPrice", netuid),
    }


def clock_fields(call: Call, netuid: int) -> dict[str, Any]:
    last = call.sub.get("LastEpochBlock", netuid)
    return {"tempo": call.sub.get("Tempo", netuid), "last_step": last, "blocks_since_last_step": call.block - last}


@api("SubnetInfoRuntimeApi_get_dynamic_info")
def dynamic_info(call: Call, netuid: int) -> dict[str, Any] | None:
    sub = call.sub
    if not subnets.exists(sub, netuid):
        return None
    return {
        "netuid": netuid,
        "owner_hotkey": sub.get("SubnetOwnerHotkey", netuid),
        "owner_coldkey": sub.get("SubnetOwner", netuid),
        "subnet_name": list(name(sub, netuid).encode()),
        "token_symbol": list(sub.get("TokenSymbol", netuid).encode()),
        **clock_fields(call, netuid),
        "emission": 0,
        **pool_fields(sub, netuid),
        "network_registered_at": sub.get("NetworkRegisteredAt", netuid),
        "subnet_identity": sub.get("SubnetIdentitiesV3", netuid),
    }


@api("SubnetInfoRuntimeApi_get_all_dynamic_info")
def all_dynamic_info(call: Call) -> list[Any]:
    return [dynamic_info(call, netuid) for netuid in subnets.netuids(call.sub)]


def _info(call: Call, netuid: int) -> dict[str, Any]:
    sub = call.sub
    return {
        "netuid": netuid,
        "rho": sub.get("Rho", netuid),
        "kappa": sub.get("Kappa", netuid),
        "difficulty": sub.get("Difficulty", netuid),
        "immunity_period": sub.get("ImmunityPeriod", netuid),
        "max_allowed_validators": sub.get("MaxAllowedValidators", netuid),
        "min_allowed_weights": sub.get("MinAllowedWeights", netuid),
        "max_weights_limit": sub.get("MaxWeightsLimit", netuid),
        "scaling_law_power": 0,
        "subnetwork_n": sub.get("SubnetworkN", netuid),
        "max_allowed_uids": sub.get("MaxAllowedUids", netuid),
        "blocks_since_last_step": sub.get("BlocksSinceLastStep", netuid),
        "tempo": sub.get("Tempo", netuid),
        "network_modality": 0,
        "network_connect": [],
        "burn": sub.get("Burn", netuid),
        "owner": sub.get("SubnetOwner", netuid),
    }


@api("SubnetInfoRuntimeApi_get_subnet_info")
def subnet_info(call: Call, netuid: int) -> dict[str, Any] | None:
    return {**_info(call, netuid), "emission_values": 0} if subnets.exists(call.sub, netuid) else None


@api("SubnetInfoRuntimeApi_get_subnets_info")
def subnets_info(call: Call) -> list[Any]:
    return [subnet_info(call, netuid) for netuid in subnets.netuids(call.sub)]


@api("SubnetInfoRuntimeApi_get_subnet_info_v2")
def subnet_info_v2(call: Call, netuid: int) -> dict[str, Any] | None:
    if not subnets.exists(call.sub, netuid):
        return None
    return {**_info(call, netuid), "emission_value": 0, "identity": call.sub.get("SubnetIdentitiesV3", netuid)}


@api("SubnetInfoRuntimeApi_get_subnets_info_v2")
def subnets_info_v2(call: Call) -> list[Any]:
    return [subnet_info_v2(call, netuid) for netuid in subnets.netuids(call.sub)]


def hyperparameter_fields(sub: Pallet, netuid: int) -> dict[str, Any]:
    alpha_low, alpha_high = sub.get("AlphaValues", netuid)
    return {
        "rho": sub.get("Rho", netuid),
        "kappa": sub.get("Kappa", netuid),
        "immunity_period": sub.get("ImmunityPeriod", netuid),
        "min_allowed_weights": sub.get("MinAllowedWeights", netuid),
        "max_weights_limit": sub.get("MaxWeightsLimit", netuid),
        "tempo": sub.get("Tempo", netuid),
        "min_difficulty": sub.get("MinDifficulty", netuid),
        "max_difficulty": sub.get("MaxDifficulty", netuid),
        "weights_version": sub.get("WeightsVersionKey", netuid),
        "weights_rate_limit": sub.get("WeightsSetRateLimit", netuid),
        "adjustment_interval": sub.get("AdjustmentInterval", netuid),
        "activity_cutoff": activity_cutoff(sub, netuid),
        "registration_allowed": sub.get("NetworkRegistrationAllowed", netuid),
        "target_regs_per_interval": sub.get("TargetRegistrationsPerInterval", netuid),
        "min_burn": sub.get("MinBurn", netuid),
        "max_burn": sub.get("MaxBurn", netuid),
        "bonds_moving_avg": sub.get("BondsMovingAverage", netuid),
        "max_regs_per_block": sub.get("MaxRegistrationsPerBlock", netuid),
        "serving_rate_limit": sub.get("ServingRateLimit", netuid),
        "max_validators": sub.get("MaxAllowedValidators", netuid),
        "adjustment_alpha": sub.get("AdjustmentAlpha", netuid),
        "difficulty": sub.get("Difficulty", netuid),
        "commit_reveal_period": sub.get("RevealPeriodEpochs", netuid),
        "commit_reveal_weights_enabled": sub.get("CommitRevealWeightsEnabled", netuid),
        "alpha_high": alpha_high,
        "alpha_low": alpha_low,
        "liquid_alpha_enabled": sub.get("LiquidAlphaOn", netuid),
    }


@api("SubnetInfoRuntimeApi_get_subnet_hyperparams")
def hyperparams(call: Call, netuid: int) -> dict[str, Any] | None:
    return hyperparameter_fields(call.sub, netuid) if subnets.exists(call.sub, netuid) else None


@api("SubnetInfoRuntimeApi_get_subnet_hyperparams_v2")
def hyperparams_v2(call: Call, netuid: int) -> dict[str, Any] | None:
    sub = call.sub
    if not subnets.exists(sub, netuid):
        return None
    return {
        **hyperparameter_fields(sub, netuid),
        "alpha_sigmoid_steepness": {"bits": sub.get("AlphaSigmoidSteepness", netuid) << 32},
        "yuma_version": 3 if sub.get("Yuma3On", netuid) else 2,
        "subnet_is_active": sub.get("SubtokenEnabled", netuid),
        "transfers_enabled": sub.get("TransferToggle", netuid),
        "bonds_reset_enabled": sub.get("BondsResetOn", netuid),
        "user_liquidity_enabled": False,
    }


V3_TYPES = {
    "kappa": "U16", "immunity_period": "U16", "min_allowed_weights": "U16", "max_weights_limit": "U16",
    "tempo": "U16", "weights_version": "U64", "weights_rate_limit": "U64", "activity_cutoff": "U64",
    "activity_cutoff_factor": "U32", "registration_allowed": "Bool", "target_regs_per_interval": "U16",
    "min_burn": "TaoBalance", "max_burn": "TaoBalance", "burn_half_life": "U16", "burn_increase_mult": "U64F64",
    "bonds_moving_avg": "U64", "max_regs_per_block": "U16", "serving_rate_limit": "U64", "max_validators": "U16",
    "commit_reveal_period": "U64", "commit_reveal_weights_enabled": "Bool", "alpha_high": "U16", "alpha_low": "U16",
    "liquid_alpha_enabled": "Bool", "alpha_sigmoid_steepness": "I32F32", "yuma_version": "U16",
    "subnet_is_active": "Bool", "transfers_enabled": "Bool", "bonds_reset_enabled": "Bool",
    "user_liquidity_enabled": "Bool", "owner_cut_enabled": "Bool", "owner_cut_auto_lock_enabled": "Bool",
    "min_childkey_take": "U16",
}  # fmt: skip
"""Names in the order clients show them, with the tag each value carries."""


@api("SubnetInfoRuntimeApi_get_subnet_hyperparams_v3")
def hyperparams_v3(call: Call, netuid: int) -> list[dict[str, Any]] | None:
    values = hyperparams_v2(call, netuid)
    if values is None:
        return None
    sub = call.sub
    values |= {
        "activity_cutoff_factor": sub.get("ActivityCutoffFactorMilli", netuid),
        "burn_half_life": sub.get("BurnHalfLife", netuid),
        "burn_increase_mult": sub.get("BurnIncreaseMult", netuid),
        "owner_cut_enabled": sub.get("OwnerCutEnabled", netuid),
        "owner_cut_auto_lock_enabled": sub.get("OwnerCutAutoLockEnabled", netuid),
        "min_childkey_take": sub.get("MinChildkeyTakePerSubnet", netuid),
    }
    return [{"name": key, "value": {tag: values[key]}} for key, tag in V3_TYPES.items()]


@api("SubnetInfoRuntimeApi_get_next_epoch_start_block")
def next_epoch_start_block(call: Call, netuid: int) -> int | None:
    return next_epoch(call.sub, netuid)


@api("SubnetInfoRuntimeApi_get_subnet_account_id")
def subnet_account_id(call: Call, netuid: int) -> str | None:
    return stake.subnet_account(netuid) if subnets.exists(call.sub, netuid) else None


@api("SubnetInfoRuntimeApi_get_coldkey_auto_stake_hotkey")
def auto_stake_hotkey(call: Call, coldkey: str, netuid: int) -> str | None:
    return call.sub.get("AutoStakeDestination", coldkey, netuid)


@api("SubnetInfoRuntimeApi_get_subnet_to_prune")
def subnet_to_prune(call: Call) -> None:
    """Nobody: this chain refuses a subnet beyond its limit instead of removing another."""
    return None


@api("SubnetRegistrationRuntimeApi_get_network_registration_cost")
def network_registration_cost(call: Call) -> int:
    return subnets.lock_cost(call.sub, call.block)


@api("SwapRuntimeApi_current_alpha_price")
def alpha_price(call: Call, netuid: int) -> int:
    return stake.price_rao(call.sub, netuid)


@api("SwapRuntimeApi_current_alpha_price_all")
def alpha_prices(call: Call) -> list[dict[str, int]]:
    return [{"netuid": netuid, "price": alpha_price(call, netuid)} for netuid in subnets.netuids(call.sub)]


NOTHING = {"tao_amount": 0, "alpha_amount": 0, "tao_fee": 0, "alpha_fee": 0, "tao_slippage": 0, "alpha_slippage": 0}


@api("SwapRuntimeApi_sim_swap_tao_for_alpha")
def simulate_stake(call: Call, netuid: int, tao: int) -> dict[str, int]:
    if netuid == stake.ROOT_NETUID:
        return {**NOTHING, "tao_amount": tao, "alpha_amount": tao}
    pool = stake.pool(call.sub, netuid)
    try:
        swap = market.stake(pool, tao, fee_rate=call.ledger.get("Swap", "FeeRate", netuid))
    except market.PoolError:
        return NOTHING
    lost = max(int(swap.paid / pool.price) - swap.received, 0)
    amounts = {"tao_amount": swap.paid, "alpha_amount": swap.received, "tao_fee": swap.fee}
    return {**NOTHING, **amounts, "alpha_slippage": lost}


@api("SwapRuntimeApi_sim_swap_alpha_for_tao")
def simulate_unstake(call: Call, netuid: int, alpha: int) -> dict[str, int]:
    if netuid == stake.ROOT_NETUID:
        return {**NOTHING, "tao_amount": alpha, "alpha_amount": alpha}
    pool = stake.pool(call.sub, netuid)
    try:
        swap = market.unstake(pool, alpha, fee_rate=call.ledger.get("Swap", "FeeRate", netuid))
    except market.PoolError:
        return NOTHING
    lost = max(int(swap.paid * pool.price) - swap.received, 0)
    amounts = {"tao_amount": swap.received, "alpha_amount": swap.paid, "alpha_fee": swap.fee}
    return {**NOTHING, **amounts, "tao_slippage": lost}
