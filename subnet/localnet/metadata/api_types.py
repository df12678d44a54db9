"""Types that runtime APIs return: metagraphs, neurons, subnets, stake and prices.

Field names and order are those the SDK 11.3 decodes. Not stored anywhere: the node fills them from the ledger on
request. SelectiveMetagraph is Metagraph with every field but the netuid optional, so it is derived from it.
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import named_types, split_commas

METAGRAPH_FIELDS = """
    netuid: Compact<NetUid>, name: Vec<Compact<u8>>, symbol: Vec<Compact<u8>>, identity: Option<SubnetIdentityV3>,
    network_registered_at: Compact<u64>, owner_hotkey: AccountId32, owner_coldkey: AccountId32, block: Compact<u64>,
    tempo: Compact<u16>, last_step: Compact<u64>, blocks_since_last_step: Compact<u64>, subnet_emission: Compact<u64>,
    alpha_in: Compact<AlphaBalance>, alpha_out: Compact<AlphaBalance>, tao_in: Compact<TaoBalance>,
    alpha_out_emission: Compact<AlphaBalance>, alpha_in_emission: Compact<AlphaBalance>,
    tao_in_emission: Compact<TaoBalance>, pending_alpha_emission: Compact<AlphaBalance>,
    pending_root_emission: Compact<TaoBalance>, subnet_volume: Compact<u128>, moving_price: FixedI128,
    rho: Compact<u16>, kappa: Compact<u16>, min_allowed_weights: Compact<u16>, max_weights_limit: Compact<u16>,
    weights_version: Compact<u64>, weights_rate_limit: Compact<u64>, activity_cutoff: Compact<u64>,
    max_validators: Compact<u16>, num_uids: Compact<u16>, max_uids: Compact<u16>, burn: Compact<TaoBalance>,
    difficulty: Compact<u64>, registration_allowed: bool, pow_registration_allowed: bool,
    immunity_period: Compact<u16>, min_difficulty: Compact<u64>, max_difficulty: Compact<u64>,
    min_burn: Compact<TaoBalance>, max_burn: Compact<TaoBalance>, adjustment_alpha: Compact<u64>,
    adjustment_interval: Compact<u16>, target_regs_per_interval: Compact<u16>, max_regs_per_block: Compact<u16>,
    serving_rate_limit: Compact<u64>, commit_reveal_weights_enabled: bool, commit_reveal_period: Compact<u64>,
    liquid_alpha_enabled: bool, alpha_high: Compact<u16>, alpha_low: Compact<u16>, bonds_moving_avg: Compact<u64>,
    hotkeys: Vec<AccountId32>, coldkeys: Vec<AccountId32>, identities: Vec<Option<ChainIdentityV2>>,
    axons: Vec<AxonInfo>, active: Vec<bool>, validator_permit: Vec<bool>, pruning_score: Vec<Compact<u16>>,
    last_update: Vec<Compact<u64>>, emission: Vec<Compact<AlphaBalance>>, dividends: Vec<Compact<u16>>,
    incentives: Vec<Compact<u16>>, consensus: Vec<Compact<u16>>, trust: Vec<Compact<u16>>, rank: Vec<Compact<u16>>,
    block_at_registration: Vec<Compact<u64>>, alpha_stake: Vec<Compact<AlphaBalance>>,
    tao_stake: Vec<Compact<TaoBalance>>, total_stake: Vec<Compact<TaoBalance>>,
    tao_dividends_per_hotkey: Vec<(AccountId32, Compact<TaoBalance>)>,
    alpha_dividends_per_hotkey: Vec<(AccountId32, Compact<AlphaBalance>)>
"""

SELECTIVE_EXTRA_FIELDS = "validators: Vec<Compact<u16>>, commitments: Vec<(AccountId32, Vec<Compact<u8>>)>"

NEURON_FIELDS = """
    hotkey: AccountId32, coldkey: AccountId32, uid: Compact<u16>, netuid: Compact<NetUid>, active: bool,
    axon_info: AxonInfo, prometheus_info: PrometheusInfo, stake: Vec<(AccountId32, Compact<AlphaBalance>)>,
    rank: Compact<u16>, emission: Compact<AlphaBalance>, incentive: Compact<u16>, consensus: Compact<u16>,
    trust: Compact<u16>, validator_trust: Compact<u16>, dividends: Compact<u16>, last_update: Compact<u64>,
    validator_permit: bool,
"""

SUBNET_INFO_FIELDS = """
    netuid: Compact<NetUid>, rho: Compact<u16>, kappa: Compact<u16>, difficulty: Compact<u64>,
    immunity_period: Compact<u16>, max_allowed_validators: Compact<u16>, min_allowed_weights: Compact<u16>,
    max_weights_limit: Compact<u16>, scaling_law_power: Compact<u16>, subnetwork_n: Compact<u16>,
    max_allowed_uids: Compact<u16>, blocks_since_last_step: Compact<u64>, tempo: Compact<u16>,
    network_modality: Compact<u16>, network_connect: Vec<[u16; 2]>,
"""

HYPERPARAMETER_FIELDS = """
    rho: Compact<u16>, kappa: Compact<u16>, immunity_period: Compact<u16>, min_allowed_weights: Compact<u16>,
    max_weights_limit: Compact<u16>, tempo: Compact<u16>, min_difficulty: Compact<u64>, max_difficulty: Compact<u64>,
    weights_version: Compact<u64>, weights_rate_limit: Compact<u64>, adjustment_interval: Compact<u16>,
    activity_cutoff: Compact<u64>, registration_allowed: bool, target_regs_per_interval: Compact<u16>,
    min_burn: Compact<TaoBalance>, max_burn: Compact<TaoBalance>, bonds_moving_avg: Compact<u64>,
    max_regs_per_block: Compact<u16>, serving_rate_limit: Compact<u64>, max_validators: Compact<u16>,
    adjustment_alpha: Compact<u64>, difficulty: Compact<u64>, commit_reveal_period: Compact<u64>,
    commit_reveal_weights_enabled: bool, alpha_high: Compact<u16>, alpha_low: Compact<u16>, liquid_alpha_enabled: bool
"""


def _selective(fields: str) -> str:
    """The fields with all but the first wrapped in Option."""
    first, *rest = split_commas(fields)
    return ", ".join([first, *(f"{name}: Option<{kind}>" for name, kind in named_types(", ".join(rest)))])


RPC = "pallet_subtensor::rpc_info"
API_TYPES = {
    f"{RPC}::metagraph::Metagraph": f"struct {{{METAGRAPH_FIELDS}}}",
    f"{RPC}::metagraph::SelectiveMetagraph":
        f"struct {{{_selective(f'{METAGRAPH_FIELDS}, {SELECTIVE_EXTRA_FIELDS}')}}}",
    f"{RPC}::neuron_info::NeuronInfo":
        f"struct {{{NEURON_FIELDS} weights: Vec<(Compact<u16>, Compact<u16>)>,"
        " bonds: Vec<(Compact<u16>, Compact<u16>)>, pruning_score: Compact<u16>}",
    f"{RPC}::neuron_info::NeuronInfoLite": f"struct {{{NEURON_FIELDS} pruning_score: Compact<u16>}}",
    f"{RPC}::subnet_info::SubnetInfo":
        f"struct {{{SUBNET_INFO_FIELDS} emission_values: Compact<u64>, burn: Compact<TaoBalance>, owner: AccountId32}}",
    f"{RPC}::subnet_info::SubnetInfov2":
        f"struct {{{SUBNET_INFO_FIELDS} emission_value: Compact<u64>, burn: Compact<TaoBalance>, owner: AccountId32,"
        " identity: Option<SubnetIdentityV3>}",
    f"{RPC}::subnet_info::SubnetHyperparams": f"struct {{{HYPERPARAMETER_FIELDS}}}",
    f"{RPC}::subnet_info::SubnetHyperparamsV2":
        f"struct {{{HYPERPARAMETER_FIELDS}, alpha_sigmoid_steepness: FixedI64, yuma_version: Compact<u16>,"
        " subnet_is_active: bool, transfers_enabled: bool, bonds_reset_enabled: bool, user_liquidity_enabled: bool}",
    f"{RPC}::subnet_info::HyperparamValue":
        "enum Bool(bool) | U16(Compact<u16>) | U32(Compact<u32>) | U64(Compact<u64>) | U128(Compact<u128>)"
        " | TaoBalance(Compact<TaoBalance>) | I32F32(FixedI64) | U64F64(FixedU128)",
    f"{RPC}::subnet_info::HyperparamEntry": "struct {name: Vec<u8>, value: HyperparamValue}",
    f"{RPC}::dynamic_info::DynamicInfo":
        "struct {netuid: Compact<NetUid>, owner_hotkey: AccountId32, owner_coldkey: AccountId32,"
        " subnet_name: Vec<Compact<u8>>, token_symbol: Vec<Compact<u8>>, tempo: Compact<u16>, last_step: Compact<u64>,"
        " blocks_since_last_step: Compact<u64>, emission: Compact<u64>, alpha_in: Compact<AlphaBalance>,"
        " alpha_out: Compact<AlphaBalance>, tao_in: Compact<TaoBalance>, alpha_out_emission: Compact<AlphaBalance>,"
        " alpha_in_emission: Compact<AlphaBalance>, tao_in_emission: Compact<TaoBalance>,"
        " pending_alpha_emission: Compact<AlphaBalance>, pending_root_emission: Compact<TaoBalance>,"
        " subnet_volume: Compact<u128>, network_registered_at: Compact<u64>,"
        " subnet_identity: Option<SubnetIdentityV3>, moving_price: FixedI128}",
    f"{RPC}::show_subnet::SubnetState":
        "struct {netuid: Compact<NetUid>, hotkeys: Vec<AccountId32>, coldkeys: Vec<AccountId32>, active: Vec<bool>,"
        " validator_permit: Vec<bool>, pruning_score: Vec<Compact<u16>>, last_update: Vec<Compact<u64>>,"
        " emission: Vec<Compact<AlphaBalance>>, dividends: Vec<Compact<u16>>, incentives: Vec<Compact<u16>>,"
        " consensus: Vec<Compact<u16>>, trust: Vec<Compact<u16>>, rank: Vec<Compact<u16>>,"
        " block_at_registration: Vec<Compact<u64>>, alpha_stake: Vec<Compact<AlphaBalance>>,"
        " tao_stake: Vec<Compact<TaoBalance>>, total_stake: Vec<Compact<TaoBalance>>,"
        " emission_history: Vec<Vec<Compact<AlphaBalance>>>}",
    f"{RPC}::stake_info::StakeInfo":
        "struct {hotkey: AccountId32, coldkey: AccountId32, netuid: Compact<NetUid>, stake: Compact<AlphaBalance>,"
        " locked: Compact<u64>, emission: Compact<AlphaBalance>, tao_emission: Compact<TaoBalance>,"
        " drain: Compact<u64>, is_registered: bool}",
    f"{RPC}::stake_info::StakeAvailability":
        "struct {total: Compact<AlphaBalance>, locked: Compact<AlphaBalance>, available: Compact<AlphaBalance>}",
    f"{RPC}::delegate_info::DelegateInfo":
        "struct {delegate_ss58: AccountId32, take: Compact<u16>,"
        " nominators: Vec<(AccountId32, Vec<(Compact<NetUid>, Compact<u64>)>)>, owner_ss58: AccountId32,"
        " registrations: Vec<Compact<NetUid>>, validator_permits: Vec<Compact<NetUid>>, return_per_1000: Compact<u64>,"
        " total_daily_return: Compact<u64>}",
    "pallet_subtensor_swap_runtime_api::SimSwapResult":
        "struct {tao_amount: TaoBalance, alpha_amount: AlphaBalance, tao_fee: TaoBalance, alpha_fee: AlphaBalance,"
        " tao_slippage: TaoBalance, alpha_slippage: AlphaBalance}",
    "pallet_subtensor_swap_runtime_api::SubnetPrice": "struct {netuid: NetUid, price: u64}",
    "substrate_fixed::FixedI64": "struct {bits: i64}",
}  # fmt: skip
