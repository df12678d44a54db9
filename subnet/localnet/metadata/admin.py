"""The AdminUtils pallet: the calls by which root and subnet owners set hyperparameters.

Names and types are the Subtensor's. Not here: knobs of what this chain has not (EVM, GRANDPA, baskets, flow
emission).
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import build
from subnet.localnet.metadata.substrate_types import TYPES

ADMIN_UTILS = build(
    TYPES, "AdminUtils", 19, "pallet_admin_utils",
    calls="""
        1 sudo_set_default_take(default_take: PerU16)
        2 sudo_set_tx_rate_limit(tx_rate_limit: u64)
        3 sudo_set_serving_rate_limit(netuid: NetUid, serving_rate_limit: u64)
        4 sudo_set_min_difficulty(netuid: NetUid, min_difficulty: u64)
        5 sudo_set_max_difficulty(netuid: NetUid, max_difficulty: u64)
        6 sudo_set_weights_version_key(netuid: NetUid, weights_version_key: u64)
        7 sudo_set_weights_set_rate_limit(netuid: NetUid, weights_set_rate_limit: u64)
        8 sudo_set_adjustment_interval(netuid: NetUid, adjustment_interval: u16)
        9 sudo_set_adjustment_alpha(netuid: NetUid, adjustment_alpha: u64)
        13 sudo_set_immunity_period(netuid: NetUid, immunity_period: u16)
        14 sudo_set_min_allowed_weights(netuid: NetUid, min_allowed_weights: u16)
        15 sudo_set_max_allowed_uids(netuid: NetUid, max_allowed_uids: u16)
        16 sudo_set_kappa(netuid: NetUid, kappa: u16)
        17 sudo_set_rho(netuid: NetUid, rho: u16)
        18 sudo_set_activity_cutoff(netuid: NetUid, activity_cutoff: u16)
        19 sudo_set_network_registration_allowed(netuid: NetUid, registration_allowed: bool)
        20 sudo_set_network_pow_registration_allowed(netuid: NetUid, registration_allowed: bool)
        21 sudo_set_target_registrations_per_interval(netuid: NetUid, target_registrations_per_interval: u16)
        22 sudo_set_min_burn(netuid: NetUid, min_burn: TaoBalance)
        23 sudo_set_max_burn(netuid: NetUid, max_burn: TaoBalance)
        24 sudo_set_difficulty(netuid: NetUid, difficulty: u64)
        25 sudo_set_max_allowed_validators(netuid: NetUid, max_allowed_validators: u16)
        26 sudo_set_bonds_moving_average(netuid: NetUid, bonds_moving_average: u64)
        27 sudo_set_max_registrations_per_block(netuid: NetUid, max_registrations_per_block: u16)
        28 sudo_set_subnet_owner_cut(subnet_owner_cut: u16)
        29 sudo_set_network_rate_limit(rate_limit: u64)
        30 sudo_set_tempo(netuid: NetUid, tempo: u16)
        33 sudo_set_total_issuance(total_issuance: TaoBalance)
        35 sudo_set_network_immunity_period(immunity_period: u64)
        36 sudo_set_network_min_lock_cost(lock_cost: TaoBalance)
        37 sudo_set_subnet_limit(max_subnets: u16)
        38 sudo_set_lock_reduction_interval(interval: u64)
        39 sudo_set_rao_recycled(netuid: NetUid, rao_recycled: TaoBalance)
        42 sudo_set_stake_threshold(min_stake: u64)
        43 sudo_set_nominator_min_required_stake(min_stake: u64)
        45 sudo_set_tx_delegate_take_rate_limit(tx_rate_limit: u64)
        46 sudo_set_min_delegate_take(take: PerU16)
        49 sudo_set_commit_reveal_weights_enabled(netuid: NetUid, enabled: bool)
        50 sudo_set_liquid_alpha_enabled(netuid: NetUid, enabled: bool)
        51 sudo_set_alpha_values(netuid: NetUid, alpha_low: u16, alpha_high: u16)
        57 sudo_set_commit_reveal_weights_interval(netuid: NetUid, interval: u64)
        60 sudo_set_bonds_penalty(netuid: NetUid, bonds_penalty: u16)
        61 sudo_set_toggle_transfer(netuid: NetUid, toggle: bool)
        63 sudo_set_subnet_moving_alpha(alpha: FixedI128)
        65 sudo_set_ema_price_halving_period(netuid: NetUid, ema_halving: u64)
        66 sudo_set_subtoken_enabled(netuid: NetUid, subtoken_enabled: bool)
        67 sudo_set_sn_owner_hotkey(netuid: NetUid, hotkey: AccountId32)
        68 sudo_set_alpha_sigmoid_steepness(netuid: NetUid, steepness: i16)
        69 sudo_set_yuma3_enabled(netuid: NetUid, enabled: bool)
        70 sudo_set_bonds_reset_enabled(netuid: NetUid, enabled: bool)
        71 sudo_set_commit_reveal_version(version: u16)
        72 sudo_set_owner_immune_neuron_limit(netuid: NetUid, immune_neurons: u16)
        74 sudo_set_admin_freeze_window(window: u16)
        75 sudo_set_owner_hparam_rate_limit(epochs: u16)
        76 sudo_set_mechanism_count(netuid: NetUid, mechanism_count: MechId)
        77 sudo_set_mechanism_emission_split(netuid: NetUid, maybe_split: Option<Vec<u16>>)
        78 sudo_trim_to_max_allowed_uids(netuid: NetUid, max_n: u16)
        79 sudo_set_min_allowed_uids(netuid: NetUid, min_allowed_uids: u16)
        80 sudo_set_recycle_or_burn(netuid: NetUid, recycle_or_burn: RecycleOrBurnEnum)
        84 sudo_set_min_non_immune_uids(netuid: NetUid, min: u16)
        85 sudo_set_start_call_delay(delay: u64)
        86 sudo_set_coldkey_swap_announcement_delay(duration: u32)
        87 sudo_set_coldkey_swap_reannouncement_delay(duration: u32)
        88 sudo_set_max_mechanism_count(max_mechanism_count: MechId)
        89 sudo_set_burn_half_life(netuid: NetUid, burn_half_life: u16)
        90 sudo_set_burn_increase_mult(netuid: NetUid, burn_increase_mult: FixedU128)
        92 sudo_set_owner_cut_enabled(netuid: NetUid, enabled: bool)
        93 sudo_set_min_childkey_take_per_subnet(netuid: NetUid, take: PerU16)
        94 sudo_set_subnet_emission_enabled(netuid: NetUid, enabled: bool)
        95 sudo_set_owner_cut_auto_lock_enabled(netuid: NetUid, enabled: bool)
        96 sudo_set_max_epochs_per_block(max_epochs_per_block: u8)
        97 sudo_set_activity_cutoff_factor(netuid: NetUid, factor_milli: u32)
        98 sudo_set_collateral_lock_share(netuid: NetUid, lock_share: u16)
        99 sudo_set_collateral_drain_ratio(netuid: NetUid, drain_ratio: FixedU128)
        100 sudo_set_epoch_consensus(netuid: NetUid, mode: EpochConsensus)
        101 sudo_set_liquid_alpha_consensus_mode(netuid: NetUid, mode: ConsensusMode)
    """,
    events="""
        Yuma3EnableToggled {netuid: NetUid, enabled: bool} = 1
        BondsResetToggled {netuid: NetUid, enabled: bool}
        BurnHalfLifeSet {netuid: NetUid, burn_half_life: u16}
        BurnIncreaseMultSet {netuid: NetUid, burn_increase_mult: FixedU128}
        SubnetEmissionEnabledSet {netuid: NetUid, enabled: bool}
    """,
    errors="""
        SubnetDoesNotExist MaxValidatorsLargerThanMaxUIds MaxAllowedUIdsLessThanCurrentUIds
        BondsMovingAverageMaxReached NegativeSigmoidSteepness ValueNotInBounds MinAllowedUidsGreaterThanCurrentUids
        MinAllowedUidsGreaterThanMaxAllowedUids MaxAllowedUidsLessThanMinAllowedUids
        MaxAllowedUidsGreaterThanDefaultMaxAllowedUids InvalidValue NotPermittedOnRootSubnet POWRegistrationDisabled
        Deprecated CollateralLockShareTooHigh CollateralDrainRatioOutOfBounds GrandpaChangeDelayMustBeZero
    """,
)  # fmt: skip
