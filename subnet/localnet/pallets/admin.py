"""AdminUtils: the hyperparameters that root and subnet owners set.

Mostly one table: which call writes which item, whether the owner may, within which bounds. Root may set everything.
An owner is held to the freeze window before an epoch and to one change per parameter in so many epochs, as on the
Subtensor; this chain's defaults for both are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subnet.localnet.dispatch import BAD_ORIGIN, ROOT, Context, DispatchError, call
from subnet.localnet.pallets import keys, mechanisms, subnets
from subnet.localnet.schedule import frozen

Check = Callable[[Context, int, Any], None]


@dataclass(frozen=True)
class Setting:
    """A per-subnet hyperparameter."""

    item: str
    owner: str | None = None
    """The name under which the owner's changes are rate-limited; None when only root may set it."""
    event: str | None = None
    check: Check | None = None


def _within(low: int, high: int) -> Check:
    def check(ctx: Context, netuid: int, value: int) -> None:
        ctx.ensure(low <= value <= high, "ValueNotInBounds", "AdminUtils")

    return check


def _max_uids(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value >= ctx.sub.get("MinAllowedUids", netuid), "MaxAllowedUidsLessThanMinAllowedUids", "AdminUtils")
    ctx.ensure(value >= ctx.sub.get("SubnetworkN", netuid), "MaxAllowedUIdsLessThanCurrentUIds", "AdminUtils")
    ctx.ensure(value <= 256, "MaxAllowedUidsGreaterThanDefaultMaxAllowedUids", "AdminUtils")
    mechanisms.ensure_room(ctx, value, ctx.sub.get("MechanismCountCurrent", netuid))


def _min_uids(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value <= ctx.sub.get("MaxAllowedUids", netuid), "MinAllowedUidsGreaterThanMaxAllowedUids", "AdminUtils")


def _max_validators(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value <= ctx.sub.get("MaxAllowedUids", netuid), "MaxValidatorsLargerThanMaxUIds", "AdminUtils")


def _min_burn(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value < min(ctx.sub.get("MaxBurn", netuid), 1_000_000_000), "ValueNotInBounds", "AdminUtils")


def _max_burn(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value > max(ctx.sub.get("MinBurn", netuid), 100_000_000), "ValueNotInBounds", "AdminUtils")


def _activity(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value >= ctx.sub.get("MinActivityCutoff"), "ActivityCutoffTooLow")


def _bonds(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(ctx.origin == ROOT or value <= 975_000, "BondsMovingAverageMaxReached", "AdminUtils")


def _reveal_period(ctx: Context, netuid: int, value: int) -> None:
    ctx.ensure(value >= 1, "RevealPeriodTooSmall")
    ctx.ensure(value <= 100, "RevealPeriodTooLarge")


SETTINGS: dict[str, Setting] = {
    "sudo_set_serving_rate_limit": Setting("ServingRateLimit", "ServingRateLimit", "ServingRateLimitSet"),
    "sudo_set_min_difficulty": Setting("MinDifficulty", None, "MinDifficultySet"),
    "sudo_set_max_difficulty": Setting("MaxDifficulty", "MaxDifficulty", "MaxDifficultySet"),
    "sudo_set_difficulty": Setting("Difficulty", None, "DifficultySet"),
    "sudo_set_weights_version_key": Setting("WeightsVersionKey", "Unknown", "WeightsVersionKeySet"),
    "sudo_set_weights_set_rate_limit": Setting("WeightsSetRateLimit", None, "WeightsSetRateLimitSet"),
    "sudo_set_adjustment_interval": Setting("AdjustmentInterval", None, "AdjustmentIntervalSet"),
    "sudo_set_adjustment_alpha": Setting("AdjustmentAlpha", "AdjustmentAlpha", "AdjustmentAlphaSet"),
    "sudo_set_immunity_period": Setting("ImmunityPeriod", "ImmunityPeriod", "ImmunityPeriodSet"),
    "sudo_set_min_allowed_weights": Setting("MinAllowedWeights", "MinAllowedWeights", "MinAllowedWeightSet"),
    "sudo_set_max_allowed_uids": Setting("MaxAllowedUids", "MaxAllowedUids", "MaxAllowedUidsSet", _max_uids),
    "sudo_set_min_allowed_uids": Setting("MinAllowedUids", None, "MinAllowedUidsSet", _min_uids),
    "sudo_set_kappa": Setting("Kappa", None, "KappaSet"),
    "sudo_set_rho": Setting("Rho", "Rho", "RhoSet"),
    "sudo_set_activity_cutoff": Setting("ActivityCutoff", "ActivityCutoff", "ActivityCutoffSet", _activity),
    "sudo_set_network_registration_allowed": Setting("NetworkRegistrationAllowed", None, "RegistrationAllowed"),
    "sudo_set_target_registrations_per_interval": Setting(
        "TargetRegistrationsPerInterval", None, "RegistrationPerIntervalSet"
    ),
    "sudo_set_max_registrations_per_block": Setting("MaxRegistrationsPerBlock", None, "MaxRegistrationsPerBlockSet"),
    "sudo_set_min_burn": Setting("MinBurn", "MinBurn", "MinBurnSet", _min_burn),
    "sudo_set_max_burn": Setting("MaxBurn", "MaxBurn", "MaxBurnSet", _max_burn),
    "sudo_set_max_allowed_validators": Setting(
        "MaxAllowedValidators", None, "MaxAllowedValidatorsSet", _max_validators
    ),
    "sudo_set_bonds_moving_average": Setting(
        "BondsMovingAverage", "BondsMovingAverage", "BondsMovingAverageSet", _bonds
    ),
    "sudo_set_bonds_penalty": Setting("BondsPenalty", "BondsPenalty", "BondsPenaltySet"),
    "sudo_set_commit_reveal_weights_enabled": Setting(
        "CommitRevealWeightsEnabled", "CommitRevealEnabled", "CommitRevealEnabled"
    ),
    "sudo_set_commit_reveal_weights_interval": Setting(
        "RevealPeriodEpochs", "WeightCommitInterval", "CommitRevealPeriodsSet", _reveal_period
    ),
    "sudo_set_liquid_alpha_enabled": Setting("LiquidAlphaOn", "LiquidAlphaEnabled"),
    "sudo_set_alpha_sigmoid_steepness": Setting(
        "AlphaSigmoidSteepness", "AlphaSigmoidSteepness", "AlphaSigmoidSteepnessSet"
    ),
    "sudo_set_toggle_transfer": Setting("TransferToggle", "TransferEnabled", "TransferToggle"),
    "sudo_set_recycle_or_burn": Setting("RecycleOrBurn", "RecycleOrBurn"),
    "sudo_set_ema_price_halving_period": Setting("EMAPriceHalvingBlocks"),
    "sudo_set_subtoken_enabled": Setting("SubtokenEnabled"),
    "sudo_set_yuma3_enabled": Setting("Yuma3On", "Yuma3Enabled"),
    "sudo_set_bonds_reset_enabled": Setting("BondsResetOn", "BondsResetEnabled", "BondsResetOnSet"),
    "sudo_set_owner_immune_neuron_limit": Setting("ImmuneOwnerUidsLimit", "ImmuneNeuronLimit", None, _within(1, 10)),
    "sudo_set_min_non_immune_uids": Setting("MinNonImmuneUids", None, "MinNonImmuneUidsSet"),
    "sudo_set_burn_half_life": Setting("BurnHalfLife", "BurnHalfLife", None, _within(1, 36_100)),
    "sudo_set_burn_increase_mult": Setting("BurnIncreaseMult", "Unknown"),
    "sudo_set_owner_cut_enabled": Setting("OwnerCutEnabled"),
    "sudo_set_subnet_emission_enabled": Setting("SubnetEmissionEnabled"),
    "sudo_set_rao_recycled": Setting("RAORecycledForRegistration", None, "RAORecycledForRegistrationSet"),
    "sudo_set_activity_cutoff_factor": Setting("ActivityCutoffFactorMilli", "Unknown", None, _within(1_000, 50_000)),
}

CHAIN_SETTINGS: dict[str, tuple[str, str | None]] = {
    "sudo_set_default_take": ("MaxDelegateTake", "MaxDelegateTakeSet"),
    "sudo_set_min_delegate_take": ("MinDelegateTake", "MinDelegateTakeSet"),
    "sudo_set_tx_rate_limit": ("TxRateLimit", "TxRateLimitSet"),
    "sudo_set_tx_delegate_take_rate_limit": ("TxDelegateTakeRateLimit", "TxDelegateTakeRateLimitSet"),
    "sudo_set_subnet_owner_cut": ("SubnetOwnerCut", "SubnetOwnerCutSet"),
    "sudo_set_network_rate_limit": ("NetworkRateLimit", "NetworkRateLimitSet"),
    "sudo_set_network_immunity_period": ("NetworkImmunityPeriod", "NetworkImmunityPeriodSet"),
    "sudo_set_network_min_lock_cost": ("NetworkMinLockCost", "NetworkMinLockCostSet"),
    "sudo_set_subnet_limit": ("SubnetLimit", "SubnetLimitSet"),
    "sudo_set_lock_reduction_interval": ("NetworkLockReductionInterval", "NetworkLockCostReductionIntervalSet"),
    "sudo_set_stake_threshold": ("StakeThreshold", "StakeThresholdSet"),
    "sudo_set_subnet_moving_alpha": ("SubnetMovingAlpha", None),
    "sudo_set_admin_freeze_window": ("AdminFreezeWindow", "AdminFreezeWindowSet"),
    "sudo_set_owner_hparam_rate_limit": ("OwnerHyperparamRateLimit", "OwnerHyperparamRateLimitSet"),
    "sudo_set_start_call_delay": ("StartCallDelay", "StartCallDelaySet"),
    "sudo_set_max_epochs_per_block": ("MaxEpochsPerBlock", "MaxEpochsPerBlockSet"),
}
"""Parameters of the whole chain, root's alone: call to (item, event)."""


def authorize(ctx: Context, netuid: int, owner: str | None) -> None:
    """BadOrigin unless root, or the subnet's owner where `owner` names a limit; then the owner's window and limit."""
    ctx.ensure(subnets.exists(ctx.sub, netuid), "SubnetDoesNotExist", "AdminUtils")
    if ctx.origin == ROOT:
        return
    if owner is None or ctx.origin != ctx.sub.get("SubnetOwner", netuid):
        raise DispatchError(BAD_ORIGIN)
    ctx.ensure(not frozen(ctx.sub, netuid, ctx.block), "AdminActionProhibitedDuringWeightsWindow")
    limit = {"OwnerHyperparamUpdate": (netuid, owner)}
    last = ctx.sub.get("LastRateLimitedBlock", limit)
    wait = ctx.sub.get("Tempo", netuid) * ctx.sub.get("OwnerHyperparamRateLimit")
    ctx.ensure(not last or ctx.block - last >= wait, "TxRateLimitExceeded")
    ctx.sub.put("LastRateLimitedBlock", limit, ctx.block)


def _register(name: str, setting: Setting) -> None:
    @call("AdminUtils", name)
    def handler(ctx: Context, netuid: int, **given: Any) -> None:
        (value,) = given.values()
        authorize(ctx, netuid, setting.owner)
        if setting.check is not None:
            setting.check(ctx, netuid, value)
        ctx.sub.put(setting.item, netuid, value)
        if setting.event is not None:
            ctx.emit("SubtensorModule", setting.event, [netuid, value])


def _register_chain(name: str, item: str, event: str | None) -> None:
    @call("AdminUtils", name)
    def handler(ctx: Context, **given: Any) -> None:
        (value,) = given.values()
        ctx.ensure_root()
        ctx.sub.put(item, value)
        if event is not None:
            ctx.emit("SubtensorModule", event, value)


for _name, _setting in SETTINGS.items():
    _register(_name, _setting)
for _name, (_item, _event) in CHAIN_SETTINGS.items():
    _register_chain(_name, _item, _event)


@call("AdminUtils", "sudo_set_tempo")
def set_tempo(ctx: Context, netuid: int, tempo: int) -> None:
    authorize(ctx, netuid, None)
    subnets.change_tempo(ctx, netuid, tempo)


@call("AdminUtils", "sudo_set_alpha_values")
def set_alpha_values(ctx: Context, netuid: int, alpha_low: int, alpha_high: int) -> None:
    authorize(ctx, netuid, "AlphaValues")
    ctx.ensure(ctx.sub.get("LiquidAlphaOn", netuid), "LiquidAlphaDisabled")
    ctx.ensure(alpha_high >= 26_214, "AlphaHighTooLow")
    ctx.ensure(1_638 <= alpha_low < alpha_high, "AlphaLowOutOfRange")
    ctx.sub.put("AlphaValues", netuid, (alpha_low, alpha_high))


@call("AdminUtils", "sudo_set_mechanism_count")
def set_mechanism_count(ctx: Context, netuid: int, mechanism_count: int) -> None:
    authorize(ctx, netuid, "Unknown")
    mechanisms.set_count(ctx, netuid, mechanism_count)


@call("AdminUtils", "sudo_set_mechanism_emission_split")
def set_mechanism_emission_split(ctx: Context, netuid: int, maybe_split: list[int] | None) -> None:
    authorize(ctx, netuid, "Unknown")
    mechanisms.set_split(ctx, netuid, maybe_split)


@call("AdminUtils", "sudo_set_max_mechanism_count")
def set_max_mechanism_count(ctx: Context, max_mechanism_count: int) -> None:
    ctx.ensure_root()
    ctx.ensure(0 < max_mechanism_count <= mechanisms.MAX_COUNT, "InvalidValue")
    ctx.sub.put("MaxMechanismCount", max_mechanism_count)


@call("AdminUtils", "sudo_set_sn_owner_hotkey")
def set_owner_hotkey(ctx: Context, netuid: int, hotkey: str) -> None:
    authorize(ctx, netuid, "Unknown")
    ctx.ensure(keys.owns(ctx, ctx.sub.get("SubnetOwner", netuid), hotkey), "NonAssociatedColdKey")
    ctx.sub.put("SubnetOwnerHotkey", netuid, hotkey)
    ctx.emit("SubtensorModule", "SubnetOwnerHotkeySet", [netuid, hotkey])
