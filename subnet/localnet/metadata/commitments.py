"""The Commitments pallet: a few bytes that a hotkey publishes under its name on a subnet.

Not a data layer: the space is bounded per account. Types are the Subtensor's: Raw0..Raw128 carry plain bytes, BigRaw
more.
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import build
from subnet.localnet.metadata.substrate_types import TYPES

COMMITMENT_TYPES = {
    "pallet_commitments::types::Data":
        "enum None | " + " | ".join(f"Raw{size}([u8; {size}])" for size in range(129))
        + " | BlakeTwo256([u8; 32]) | Sha256([u8; 32]) | Keccak256([u8; 32]) | ShaThree256([u8; 32])"
        " | TimelockEncrypted {encrypted: BoundedVec<u8>, reveal_round: u64} | ResetBondsFlag | BigRaw(BoundedVec<u8>)",
    "pallet_commitments::types::CommitmentInfo": "struct {fields: BoundedVec<Data>}",
    "pallet_commitments::types::Registration": "struct {deposit: TaoBalance, block: u32, info: CommitmentInfo}",
    "pallet_commitments::types::UsageTracker": "struct {last_epoch: u64, used_space: u64}",
}  # fmt: skip
TYPES.declare(COMMITMENT_TYPES)

COMMITMENTS = build(
    TYPES, "Commitments", 18, "pallet_commitments",
    storage="""
        TimelockedIndex: BTreeSet<(NetUid, AccountId32)>
        CommitmentOf: NetUid identity, AccountId32 twox -> Registration?
        LastCommitment: NetUid identity, AccountId32 twox -> u32?
        LastBondsReset: NetUid identity, AccountId32 twox -> u32?
        RevealedCommitments: NetUid identity, AccountId32 twox -> Vec<(Vec<u8>, u64)>?
        UsedSpaceOf: NetUid identity, AccountId32 twox -> UsageTracker?
        MaxSpace: u32 = 3100
    """,
    calls="""
        0 set_commitment(netuid: NetUid, info: CommitmentInfo)
        2 set_max_space(new_limit: u32)
    """,
    events="""
        Commitment {netuid: NetUid, who: AccountId32}
        TimelockCommitment {netuid: NetUid, who: AccountId32, reveal_round: u64}
        CommitmentRevealed {netuid: NetUid, who: AccountId32}
    """,
    errors="""
        TooManyFieldsInCommitmentInfo AccountNotAllowedCommit SpaceLimitExceeded UnexpectedUnreserveLeftover
        TimelockRevealFailedNotAllowed
    """,
    constants="""
        MaxFields: u32 = 3
        InitialDeposit: TaoBalance
        FieldDeposit: TaoBalance
    """,
)  # fmt: skip
