"""Calls of the SubtensorModule pallet, by what they change.

Names, arguments and their types are the Subtensor's. Readers take a call's index from the metadata, so those of the
newest calls are simply free ones. Not here: voting power, baskets and collateral, which this chain does not have.
"""

SUBNETS = """
    59 register_network(hotkey: AccountId32)
    79 register_network_with_identity(hotkey: AccountId32, identity: Option<SubnetIdentityV3>)
    92 start_call(netuid: NetUid)
    61 dissolve_network(coldkey: AccountId32, netuid: NetUid)
    120 root_dissolve_network(netuid: NetUid)
    78 set_subnet_identity(netuid: NetUid, subnet_name: Vec<u8>, github_repo: Vec<u8>, subnet_contact: Vec<u8>,
        subnet_url: Vec<u8>, discord: Vec<u8>, description: Vec<u8>, logo_url: Vec<u8>, additional: Vec<u8>)
    112 update_symbol(netuid: NetUid, symbol: Vec<u8>)
    141 trigger_epoch(netuid: NetUid)
    139 set_tempo(netuid: NetUid, tempo: u16)
    140 set_activity_cutoff_factor(netuid: NetUid, factor_milli: u32)
    135 set_auto_parent_delegation_enabled(hotkey: AccountId32, enabled: bool)
    110 register_leased_network(emissions_share: Percent, end_block: Option<u32>)
    111 terminate_lease(lease_id: u32, hotkey: AccountId32)
"""

NEURONS = """
    6 register(netuid: NetUid, block_number: u64, nonce: u64, work: Vec<u8>, hotkey: AccountId32, coldkey: AccountId32)
    7 burned_register(netuid: NetUid, hotkey: AccountId32)
    134 register_limit(netuid: NetUid, hotkey: AccountId32, limit_price: u64)
    62 root_register(hotkey: AccountId32)
    4 serve_axon(netuid: NetUid, version: u32, ip: u128, port: u16, ip_type: u8, protocol: u8, placeholder1: u8,
        placeholder2: u8)
    40 serve_axon_tls(netuid: NetUid, version: u32, ip: u128, port: u16, ip_type: u8, protocol: u8, placeholder1: u8,
        placeholder2: u8, certificate: Vec<u8>)
    5 serve_prometheus(netuid: NetUid, version: u32, ip: u128, port: u16, ip_type: u8)
    68 set_identity(name: Vec<u8>, url: Vec<u8>, github_repo: Vec<u8>, image: Vec<u8>, discord: Vec<u8>,
        description: Vec<u8>, additional: Vec<u8>)
    91 try_associate_hotkey(hotkey: AccountId32)
    70 swap_hotkey(hotkey: AccountId32, new_hotkey: AccountId32, netuid: Option<NetUid>)
    72 swap_hotkey_v2(hotkey: AccountId32, new_hotkey: AccountId32, netuid: Option<NetUid>, keep_stake: bool)
    93 associate_evm_key(netuid: NetUid, evm_key: H160, block_number: u64, signature: [u8; 65])
    144 pow_register(netuid: NetUid, work_block: u64, nonce: u64, work: Vec<u8>, hotkey: AccountId32)
"""

WEIGHTS = """
    0 set_weights(netuid: NetUid, dests: Vec<u16>, weights: Vec<u16>, version_key: u64)
    119 set_mechanism_weights(netuid: NetUid, mecid: MechId, dests: Vec<u16>, weights: Vec<u16>, version_key: u64)
    80 batch_set_weights(netuids: Vec<Compact<NetUid>>, weights: Vec<Vec<(Compact<u16>, Compact<u16>)>>,
        version_keys: Vec<Compact<u64>>)
    96 commit_weights(netuid: NetUid, commit_hash: H256)
    115 commit_mechanism_weights(netuid: NetUid, mecid: MechId, commit_hash: H256)
    100 batch_commit_weights(netuids: Vec<Compact<NetUid>>, commit_hashes: Vec<H256>)
    97 reveal_weights(netuid: NetUid, uids: Vec<u16>, values: Vec<u16>, salt: Vec<u16>, version_key: u64)
    116 reveal_mechanism_weights(netuid: NetUid, mecid: MechId, uids: Vec<u16>, values: Vec<u16>, salt: Vec<u16>,
        version_key: u64)
    98 batch_reveal_weights(netuid: NetUid, uids_list: Vec<Vec<u16>>, values_list: Vec<Vec<u16>>,
        salts_list: Vec<Vec<u16>>, version_keys: Vec<u64>)
    113 commit_timelocked_weights(netuid: NetUid, commit: BoundedVec<u8>, reveal_round: u64, commit_reveal_version: u16)
    117 commit_crv3_mechanism_weights(netuid: NetUid, mecid: MechId, commit: BoundedVec<u8>, reveal_round: u64)
    118 commit_timelocked_mechanism_weights(netuid: NetUid, mecid: MechId, commit: BoundedVec<u8>, reveal_round: u64,
        commit_reveal_version: u16)
"""

STAKE = """
    2 add_stake(hotkey: AccountId32, netuid: NetUid, amount_staked: TaoBalance)
    88 add_stake_limit(hotkey: AccountId32, netuid: NetUid, amount_staked: TaoBalance, limit_price: TaoBalance,
        allow_partial: bool)
    3 remove_stake(hotkey: AccountId32, netuid: NetUid, amount_unstaked: AlphaBalance)
    89 remove_stake_limit(hotkey: AccountId32, netuid: NetUid, amount_unstaked: AlphaBalance, limit_price: TaoBalance,
        allow_partial: bool)
    103 remove_stake_full_limit(hotkey: AccountId32, netuid: NetUid, limit_price: Option<TaoBalance>)
    83 unstake_all(hotkey: AccountId32)
    84 unstake_all_alpha(hotkey: AccountId32)
    85 move_stake(origin_hotkey: AccountId32, destination_hotkey: AccountId32, origin_netuid: NetUid,
        destination_netuid: NetUid, alpha_amount: AlphaBalance)
    86 transfer_stake(destination_coldkey: AccountId32, hotkey: AccountId32, origin_netuid: NetUid,
        destination_netuid: NetUid, alpha_amount: AlphaBalance)
    87 swap_stake(hotkey: AccountId32, origin_netuid: NetUid, destination_netuid: NetUid, alpha_amount: AlphaBalance)
    90 swap_stake_limit(hotkey: AccountId32, origin_netuid: NetUid, destination_netuid: NetUid,
        alpha_amount: AlphaBalance, limit_price: TaoBalance, allow_partial: bool)
    132 add_stake_burn(hotkey: AccountId32, netuid: NetUid, amount: TaoBalance, limit: Option<TaoBalance>)
    101 recycle_alpha(hotkey: AccountId32, amount: AlphaBalance, netuid: NetUid)
    102 burn_alpha(hotkey: AccountId32, amount: AlphaBalance, netuid: NetUid)
    121 claim_root(subnets: BTreeSet<NetUid>)
    114 set_coldkey_auto_stake_hotkey(netuid: NetUid, hotkey: AccountId32)
    136 lock_stake(hotkey: AccountId32, netuid: NetUid, amount: AlphaBalance)
    137 move_lock(destination_hotkey: AccountId32, netuid: NetUid)
    138 set_perpetual_lock(netuid: NetUid, enabled: bool)
    142 set_reject_locked_alpha(enabled: bool)
    143 transfer_stake_and_hotkey(destination_coldkey: AccountId32, origin_hotkey: AccountId32,
        destination_hotkey: AccountId32, origin_netuid: NetUid, destination_netuid: NetUid, alpha_amount: AlphaBalance)
    149 move_stake_limit(origin_hotkey: AccountId32, destination_hotkey: AccountId32, origin_netuid: NetUid,
        destination_netuid: NetUid, alpha_amount: AlphaBalance, limit_price: TaoBalance, allow_partial: bool)
"""

KEYS = """
    65 decrease_take(hotkey: AccountId32, take: PerU16)
    66 increase_take(hotkey: AccountId32, take: PerU16)
    67 set_children(hotkey: AccountId32, netuid: NetUid, children: Vec<(u64, AccountId32)>)
    75 set_childkey_take(hotkey: AccountId32, netuid: NetUid, take: PerU16)
    109 set_pending_childkey_cooldown(cooldown: u64)
    71 swap_coldkey(old_coldkey: AccountId32, new_coldkey: AccountId32, swap_cost: TaoBalance)
    73 schedule_swap_coldkey(new_coldkey: AccountId32)
    125 announce_coldkey_swap(new_coldkey_hash: H256)
    126 swap_coldkey_announced(new_coldkey: AccountId32)
    127 dispute_coldkey_swap()
    128 reset_coldkey_swap(coldkey: AccountId32)
    133 clear_coldkey_swap_announcement()
"""

ROOT = """
    69 sudo_set_tx_childkey_take_rate_limit(tx_rate_limit: u64)
    76 sudo_set_min_childkey_take(take: PerU16)
    77 sudo_set_max_childkey_take(take: PerU16)
    124 sudo_set_root_claim_threshold(netuid: NetUid, new_value: u64)
"""

CALLS = SUBNETS + NEURONS + WEIGHTS + STAKE + KEYS + ROOT
