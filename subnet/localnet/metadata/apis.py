"""Runtime APIs: the methods ``state_call`` answers, with their arguments and results.

What SDK 11.3 and btcli call, plus what an older SDK of the same shape calls. Not the answers: the node computes them.
Root baskets are listed because btcli asks for a wallet's claims on them; on this chain the answer is always "none".
"""

from __future__ import annotations

import re

from subnet.localnet.metadata.encode import EXTRINSIC_TYPE, Apis, Method
from subnet.localnet.metadata.pallet import named_types

TABLE = f"""
Core
    version() -> RuntimeVersion
    initialize_block(header: Header) -> ExtrinsicInclusionMode
Metadata
    metadata() -> OpaqueMetadata
    metadata_at_version(version: u32) -> Option<OpaqueMetadata>
    metadata_versions() -> Vec<u32>
TaggedTransactionQueue
    validate_transaction(source: TransactionSource, tx: {EXTRINSIC_TYPE}, block_hash: H256)
        -> Result<ValidTransaction, TransactionValidityError>
AccountNonceApi
    account_nonce(account: AccountId32) -> u32
TransactionPaymentApi
    query_info(uxt: {EXTRINSIC_TYPE}, len: u32) -> RuntimeDispatchInfo
    query_fee_details(uxt: {EXTRINSIC_TYPE}, len: u32) -> FeeDetails
    query_weight_to_fee(weight: Weight) -> TaoBalance
    query_length_to_fee(length: u32) -> TaoBalance
TransactionPaymentCallApi
    query_call_info(call: RuntimeCall, len: u32) -> RuntimeDispatchInfo
    query_call_fee_details(call: RuntimeCall, len: u32) -> FeeDetails
    query_weight_to_fee(weight: Weight) -> TaoBalance
    query_length_to_fee(length: u32) -> TaoBalance
DelegateInfoRuntimeApi
    get_delegates() -> Vec<DelegateInfo>
    get_delegate(delegate_account: AccountId32) -> Option<DelegateInfo>
    get_delegated(delegatee_account: AccountId32) -> Vec<(DelegateInfo, (Compact<NetUid>, Compact<AlphaBalance>))>
NeuronInfoRuntimeApi
    get_neurons(netuid: NetUid) -> Vec<NeuronInfo>
    get_neuron(netuid: NetUid, uid: u16) -> Option<NeuronInfo>
    get_neurons_lite(netuid: NetUid) -> Vec<NeuronInfoLite>
    get_neuron_lite(netuid: NetUid, uid: u16) -> Option<NeuronInfoLite>
SubnetInfoRuntimeApi
    get_subnet_info(netuid: NetUid) -> Option<SubnetInfo>
    get_subnets_info() -> Vec<Option<SubnetInfo>>
    get_subnet_info_v2(netuid: NetUid) -> Option<SubnetInfov2>
    get_subnets_info_v2() -> Vec<Option<SubnetInfov2>>
    get_subnet_hyperparams(netuid: NetUid) -> Option<SubnetHyperparams>
    get_subnet_hyperparams_v2(netuid: NetUid) -> Option<SubnetHyperparamsV2>
    get_subnet_hyperparams_v3(netuid: NetUid) -> Option<Vec<HyperparamEntry>>
    get_all_dynamic_info() -> Vec<Option<DynamicInfo>>
    get_dynamic_info(netuid: NetUid) -> Option<DynamicInfo>
    get_all_metagraphs() -> Vec<Option<Metagraph>>
    get_metagraph(netuid: NetUid) -> Option<Metagraph>
    get_all_mechagraphs() -> Vec<Option<Metagraph>>
    get_mechagraph(netuid: NetUid, mecid: MechId) -> Option<Metagraph>
    get_selective_metagraph(netuid: NetUid, metagraph_indexes: Vec<u16>) -> Option<SelectiveMetagraph>
    get_selective_mechagraph(netuid: NetUid, subid: MechId, metagraph_indexes: Vec<u16>) -> Option<SelectiveMetagraph>
    get_subnet_state(netuid: NetUid) -> Option<SubnetState>
    get_coldkey_auto_stake_hotkey(coldkey: AccountId32, netuid: NetUid) -> Option<AccountId32>
    get_subnet_to_prune() -> Option<NetUid>
    get_subnet_account_id(netuid: NetUid) -> Option<AccountId32>
    get_next_epoch_start_block(netuid: NetUid) -> Option<u64>
StakeInfoRuntimeApi
    get_stake_info_for_coldkey(coldkey_account: AccountId32) -> Vec<StakeInfo>
    get_stake_info_for_coldkeys(coldkey_accounts: Vec<AccountId32>) -> Vec<(AccountId32, Vec<StakeInfo>)>
    get_stake_info_for_hotkey_coldkey_netuid(hotkey_account: AccountId32, coldkey_account: AccountId32, netuid: NetUid)
        -> Option<StakeInfo>
    get_stake_availability_for_coldkeys(coldkey_accounts: Vec<AccountId32>, netuids: Option<Vec<NetUid>>)
        -> BTreeMap<AccountId32, BTreeMap<NetUid, StakeAvailability>>
    get_stake_fee(origin: Option<(AccountId32, NetUid)>, origin_coldkey_account: AccountId32,
        destination: Option<(AccountId32, NetUid)>, destination_coldkey_account: AccountId32, amount: u64) -> u64
    get_coldkey_lock(coldkey: AccountId32, netuid: NetUid) -> Option<LockState>
    get_hotkey_conviction(hotkey: AccountId32, netuid: NetUid) -> FixedU128
    get_most_convicted_hotkey_on_subnet(netuid: NetUid) -> Option<AccountId32>
SubnetRegistrationRuntimeApi
    get_network_registration_cost() -> TaoBalance
SwapRuntimeApi
    current_alpha_price(netuid: NetUid) -> u64
    current_alpha_price_all() -> Vec<SubnetPrice>
    sim_swap_tao_for_alpha(netuid: NetUid, tao: TaoBalance) -> SimSwapResult
    sim_swap_alpha_for_tao(netuid: NetUid, alpha: AlphaBalance) -> SimSwapResult
BetaBasketRuntimeApi
    get_root_basket_owed(coldkey: AccountId32) -> TaoBalance
    get_basket_payout(hotkey: AccountId32, coldkey: AccountId32) -> TaoBalance
    get_validator_basket_nav(hotkey: AccountId32) -> TaoBalance
    get_validator_basket(hotkey: AccountId32) -> Vec<(NetUid, AlphaBalance, TaoBalance)>
    get_root_basket_total_nav() -> TaoBalance
    get_root_basket_positions(coldkey: AccountId32) -> Vec<(AccountId32, u64, TaoBalance)>
"""


def parse_apis(table: str) -> Apis:
    """APIs from a table: a name flush left, its methods indented below, their continuations indented twice.

    Raises ValueError naming a method that cannot be read.
    """
    apis: dict[str, list[Method]] = {}
    for block in re.split(r"\n(?=\S)", table.strip()):
        name, *lines = re.sub(r"\n {8}\s*", " ", block).splitlines()
        methods = apis.setdefault(name.strip(), [])
        for line in map(str.strip, lines):
            match = re.fullmatch(r"(\w+)\((.*)\) -> (.+)", line)
            if match is None:
                raise ValueError(f"a method is 'name(arg: Type, ...) -> Type', not {line!r}")
            methods.append(Method(match[1], named_types(match[2]), match[3].strip()))
    return {name: tuple(listed) for name, listed in apis.items()}


APIS = parse_apis(TABLE)
