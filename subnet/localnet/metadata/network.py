"""Pallets around subnets: Drand (the beacon timelocks wait for), Swap (alpha's market), MevShield and AlphaAssets.

Names, indices and types are the Subtensor's. Not whole: what the SDK reads or submits. The shield's ciphertext is
key hash (16) | length (u16) | ML-KEM-768 ciphertext | nonce (24) | XChaCha20-Poly1305 of the signed extrinsic.
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import build
from subnet.localnet.metadata.substrate_types import TYPES

TYPES.declare(
    {
        "pallet_drand::types::Pulse": "struct {round: u64, randomness: BoundedVec<u8>, signature: BoundedVec<u8>}",
        "pallet_subtensor_swap::pallet::balancer::Balancer": "struct {quote: Perquintill}",
        "sp_arithmetic::per_things::Perquintill": "struct (u64)",
    }
)

DRAND = build(
    TYPES, "Drand", 26, "pallet_drand",
    storage="""
        Pulses: u64 blake2 -> Pulse?
        LastStoredRound: u64
        OldestStoredRound: u64
        NextUnsignedAt: u32
    """,
    calls="2 set_oldest_stored_round(oldest_round: u64)",
    events="""
        NewPulse {rounds: Vec<u64>} = 1
        SetOldestStoredRound(u64)
    """,
    errors="NoneValue StorageOverflow DrandConnectionFailure UnverifiedPulse InvalidRoundNumber PulseVerificationError",
)  # fmt: skip

SWAP = build(
    TYPES, "Swap", 28, "pallet_subtensor_swap",
    storage="""
        FeeRate: NetUid twox -> u16 = 33
        SwapBalancer: NetUid twox -> Balancer = {"quote": 500000000000000000}
        PalSwapInitialized: NetUid twox -> bool
        BalancerTaoReservoir: NetUid twox -> TaoBalance
        BalancerAlphaReservoir: NetUid twox -> AlphaBalance
    """,
    calls="0 set_fee_rate(netuid: NetUid, rate: u16)",
    events="FeeRateSet {netuid: NetUid, rate: u16}",
    errors="""
        FeeRateTooHigh InsufficientInputAmount InsufficientLiquidity PriceLimitExceeded InsufficientBalance
        InvalidTickRange InvalidLiquidityValue ReservesTooLow MechanismDoesNotExist SubtokenDisabled
        ReservesOutOfBalance SwapInputTooLarge Deprecated
    """,
    constants="""
        ProtocolId: PalletId = "0x74656e2f73776170"
        MaxFeeRate: u16 = 10000
        MinimumLiquidity: u64 = 1000
        MinimumReserve: u64 = 1000000
    """,
)  # fmt: skip

MEV_SHIELD = build(
    TYPES, "MevShield", 30, "pallet_shield",
    storage="""
        CurrentKey: BoundedVec<u8>?
        PendingKey: BoundedVec<u8>?
        NextKey: BoundedVec<u8>?
        AuthorKeys: [u8; 32] twox -> BoundedVec<u8>?
        PendingKeyExpiresAt: u32?
        NextKeyExpiresAt: u32?
        MaxPendingExtrinsicsLimit: u32 = 100
        ExtrinsicLifetime: u32 = 10
    """,
    calls="""
        0 announce_next_key(enc_key: Option<BoundedVec<u8>>)
        1 submit_encrypted(ciphertext: BoundedVec<u8>)
    """,
    events="""
        EncryptedSubmitted {id: H256, who: AccountId32}
        ExtrinsicDecodeFailed {index: u32} = 2
        ExtrinsicDispatchFailed {index: u32, error: DispatchError}
        ExtrinsicDispatched {index: u32}
        ExtrinsicExpired {index: u32}
    """,
    errors="BadEncKeyLen Unreachable TooManyPendingExtrinsics WeightExceedsAbsoluteMax",
)  # fmt: skip

ALPHA_ASSETS = build(
    TYPES, "AlphaAssets", 31, "pallet_alpha_assets",
    storage="""
        TotalAlphaIssuance: NetUid twox -> AlphaBalance
        AlphaBurned: NetUid twox -> AlphaBalance
        AlphaRecycled: NetUid twox -> AlphaBalance
    """,
)  # fmt: skip

PALLETS = (DRAND, SWAP, MEV_SHIELD, ALPHA_ASSETS)
