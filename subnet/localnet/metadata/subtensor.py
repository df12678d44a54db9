"""The SubtensorModule pallet: subnets, neurons, stake, weights and the epochs that pay them.

Declares the types its storage and calls use and joins the tables of subtensor_storage, subtensor_calls and
subtensor_events. Not behaviour. Field names and order are the Subtensor's.
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import build
from subnet.localnet.metadata.substrate_types import TYPES
from subnet.localnet.metadata.subtensor_calls import CALLS
from subnet.localnet.metadata.subtensor_events import CONSTANTS, ERRORS, EVENTS
from subnet.localnet.metadata.subtensor_storage import STORAGE

HYPERPARAMETERS = (
    "Unknown ServingRateLimit MaxDifficulty AdjustmentAlpha MaxWeightLimit ImmunityPeriod MinAllowedWeights Kappa Rho"
    " ActivityCutoff PowRegistrationAllowed MinBurn MaxBurn BondsMovingAverage BondsPenalty CommitRevealEnabled"
    " LiquidAlphaEnabled AlphaValues WeightCommitInterval TransferEnabled AlphaSigmoidSteepness Yuma3Enabled"
    " BondsResetEnabled ImmuneNeuronLimit RecycleOrBurn MaxAllowedUids BurnHalfLife"
)

SUBTENSOR_TYPES = {
    "pallet_subtensor::pallet::AxonInfo":
        "struct {block: u64, version: u32, ip: u128, port: u16, ip_type: u8, protocol: u8, placeholder1: u8,"
        " placeholder2: u8}",
    "share_pool::SafeFloat": "struct {mantissa: u128, exponent: i64}",
    "pallet_subtensor::pallet::PrometheusInfo": "struct {block: u64, version: u32, ip: u128, port: u16, ip_type: u8}",
    "pallet_subtensor::pallet::ChainIdentityV2":
        "struct {name: Vec<u8>, url: Vec<u8>, github_repo: Vec<u8>, image: Vec<u8>, discord: Vec<u8>,"
        " description: Vec<u8>, additional: Vec<u8>}",
    "pallet_subtensor::pallet::SubnetIdentityV3":
        "struct {subnet_name: Vec<u8>, github_repo: Vec<u8>, subnet_contact: Vec<u8>, subnet_url: Vec<u8>,"
        " discord: Vec<u8>, description: Vec<u8>, logo_url: Vec<u8>, additional: Vec<u8>}",
    "pallet_subtensor::pallet::RecycleOrBurnEnum": "enum Burn | Recycle",
    "pallet_subtensor::pallet::ConsensusMode": "enum Current | Previous | Auto",
    "pallet_subtensor::pallet::EpochConsensus": "enum Yuma | Null",
    "pallet_subtensor::pallet::MinerCollateralState":
        "struct {locked: AlphaBalance, drain_ratio: FixedU128, min_locked: AlphaBalance, earned: AlphaBalance}",
    "pallet_subtensor::staking::lock::LockState":
        "struct {locked_mass: AlphaBalance, conviction: FixedU128, last_update: u64}",
    "pallet_subtensor::subnets::subnet::NetworkRegistrationInfo":
        "struct {coldkey: AccountId32, hotkey: AccountId32, mechid: u16, identity: Option<SubnetIdentityV3>,"
        " lock_amount: TaoBalance, median_subnet_alpha_price: FixedU128, registration_block: u64, lock_id: u32}",
    "pallet_subtensor::subnets::subnet::DissolveCleanupStatus": "struct {netuid: NetUid}",
    "pallet_subtensor::subnets::leasing::SubnetLease":
        "struct {beneficiary: AccountId32, coldkey: AccountId32, hotkey: AccountId32, emissions_share: Percent,"
        " end_block: Option<u32>, netuid: NetUid, cost: TaoBalance}",
    "pallet_subtensor::RateLimitKey":
        "enum SetSNOwnerHotkey(NetUid) | OwnerHyperparamUpdate(NetUid, Hyperparameter) | NetworkLastRegistered"
        " | LastTxBlock(AccountId32) | LastTxBlockChildKeyTake(AccountId32) | LastTxBlockDelegateTake(AccountId32)"
        " | AddStakeBurn(NetUid)",
    "pallet_subtensor::utils::rate_limiting::Hyperparameter": "enum " + " | ".join(HYPERPARAMETERS.split()),
}  # fmt: skip
TYPES.declare(SUBTENSOR_TYPES)

SUBTENSOR = build(
    TYPES, "SubtensorModule", 7, "pallet_subtensor",
    storage=STORAGE, calls=CALLS, events=EVENTS, errors=ERRORS, constants=CONSTANTS,
)  # fmt: skip
