"""The pallets every Substrate chain has: System, Timestamp, Aura, Balances, TransactionPayment, Utility, Sudo.

Names, indices and types are those of the Subtensor runtime. Not a whole FRAME: items that only block authors or
runtime upgrades touch are left out.
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import Pallet, build
from subnet.localnet.metadata.substrate_types import TYPES

SPEC_NAME = "node-subtensor"
SPEC_VERSION = 426
TX_VERSION = 1
SS58_PREFIX = 42

_WEIGHT = '{"ref_time": %d, "proof_size": %d}'
_CLASS = '{"base_extrinsic": %s, "max_extrinsic": None, "max_total": None, "reserved": None}' % (_WEIGHT % (0, 0))
_BLOCK = _WEIGHT % (4_000_000_000_000, 18_446_744_073_709_551_615)
_BLOCK_WEIGHTS = (
    f'{{"base_block": {_WEIGHT % (0, 0)}, "max_block": {_BLOCK}, '
    f'"per_class": {{"normal": {_CLASS}, "operational": {_CLASS}, "mandatory": {_CLASS}}}}}'
)
_VERSION = (
    f'{{"spec_name": "{SPEC_NAME}", "impl_name": "sn38-localnet", "authoring_version": 1, '
    f'"spec_version": {SPEC_VERSION}, "impl_version": 1, "apis": [], "transaction_version": {TX_VERSION}, '
    '"system_version": 1}'
)

SYSTEM = build(
    TYPES, "System", 0, "frame_system",
    storage="""
        Account: AccountId32 blake2 -> AccountInfo
        ExtrinsicCount: u32?
        BlockWeight: PerDispatchClass<Weight>
        AllExtrinsicsLen: u32?
        BlockHash: u32 twox -> H256
        ExtrinsicData: u32 twox -> Vec<u8>
        Number: u32
        ParentHash: H256
        Digest: Digest
        Events: Vec<EventRecord>
        EventCount: u32
        EventTopics: H256 blake2 -> Vec<(u32, u32)>
        LastRuntimeUpgrade: LastRuntimeUpgradeInfo?
        UpgradedToU32RefCount: bool = True
        UpgradedToTripleRefCount: bool = True
        ExecutionPhase: Phase?
    """,
    calls="""
        0 remark(remark: Vec<u8>)
        4 set_storage(items: Vec<(Vec<u8>, Vec<u8>)>)
        5 kill_storage(keys: Vec<Vec<u8>>)
        6 kill_prefix(prefix: Vec<u8>, subkeys: u32)
        7 remark_with_event(remark: Vec<u8>)
    """,
    events="""
        ExtrinsicSuccess {dispatch_info: DispatchEventInfo}
        ExtrinsicFailed {dispatch_error: DispatchError, dispatch_info: DispatchEventInfo}
        CodeUpdated
        NewAccount {account: AccountId32}
        KilledAccount {account: AccountId32}
        Remarked {sender: AccountId32, hash: H256}
    """,
    errors="""
        InvalidSpecName SpecVersionNeedsToIncrease FailedToExtractRuntimeVersion NonDefaultComposite NonZeroRefCount
        CallFiltered MultiBlockMigrationsOngoing NothingAuthorized Unauthorized
    """,
    constants=f"""
        BlockWeights: BlockWeights = {_BLOCK_WEIGHTS}
        BlockLength: BlockLength = {{"max": {{"normal": 7864320, "operational": 10485760, "mandatory": 10485760}}}}
        BlockHashCount: u32 = 2400
        DbWeight: RuntimeDbWeight = {{"read": 25000000, "write": 100000000}}
        Version: RuntimeVersion = {_VERSION}
        SS58Prefix: u16 = {SS58_PREFIX}
    """,
)  # fmt: skip

DEFAULT_SLOT_MS = 250


def clock_pallets(slot_ms: int) -> tuple[Pallet, Pallet]:
    """Timestamp and Aura for a block time in milliseconds: the SDK learns the block time from ``Aura.SlotDuration``."""
    timestamp = build(
        TYPES, "Timestamp", 2, "pallet_timestamp",
        storage="""
            Now: u64
            DidUpdate: bool
        """,
        calls="0 set(now: Compact<u64>)",
        constants=f"MinimumPeriod: u64 = {slot_ms // 2}",
    )  # fmt: skip
    aura = build(
        TYPES, "Aura", 3, "pallet_aura",
        storage="""
            Authorities: BoundedVec<[u8; 32]>
            CurrentSlot: Slot
        """,
        constants=f"SlotDuration: u64 = {slot_ms}",
    )  # fmt: skip
    return timestamp, aura


BALANCES = build(
    TYPES, "Balances", 5, "pallet_balances",
    storage="""
        TotalIssuance: TaoBalance
        InactiveIssuance: TaoBalance
        Account: AccountId32 blake2 -> AccountData
        Locks: AccountId32 blake2 -> WeakBoundedVec<BalanceLock>
    """,
    calls="""
        0 transfer_allow_death(dest: MultiAddress, value: Compact<TaoBalance>)
        2 force_transfer(source: MultiAddress, dest: MultiAddress, value: Compact<TaoBalance>)
        3 transfer_keep_alive(dest: MultiAddress, value: Compact<TaoBalance>)
        4 transfer_all(dest: MultiAddress, keep_alive: bool)
        5 force_unreserve(who: MultiAddress, amount: TaoBalance)
        6 upgrade_accounts(who: Vec<AccountId32>)
        8 force_set_balance(who: MultiAddress, new_free: Compact<TaoBalance>)
        9 force_adjust_total_issuance(direction: AdjustmentDirection, delta: Compact<TaoBalance>)
        10 burn(value: Compact<TaoBalance>, keep_alive: bool)
    """,
    events="""
        Endowed {account: AccountId32, free_balance: TaoBalance}
        DustLost {account: AccountId32, amount: TaoBalance}
        Transfer {from: AccountId32, to: AccountId32, amount: TaoBalance}
        BalanceSet {who: AccountId32, free: TaoBalance}
        Reserved {who: AccountId32, amount: TaoBalance}
        Unreserved {who: AccountId32, amount: TaoBalance}
        ReserveRepatriated {from: AccountId32, to: AccountId32, amount: TaoBalance, destination_status: BalanceStatus}
        Deposit {who: AccountId32, amount: TaoBalance}
        Withdraw {who: AccountId32, amount: TaoBalance}
        Slashed {who: AccountId32, amount: TaoBalance}
        Minted {who: AccountId32, amount: TaoBalance}
        Burned {who: AccountId32, amount: TaoBalance}
        Suspended {who: AccountId32, amount: TaoBalance}
        Restored {who: AccountId32, amount: TaoBalance}
        Upgraded {who: AccountId32}
        Issued {amount: TaoBalance}
        Rescinded {amount: TaoBalance}
        Locked {who: AccountId32, amount: TaoBalance}
        Unlocked {who: AccountId32, amount: TaoBalance}
        Frozen {who: AccountId32, amount: TaoBalance}
        Thawed {who: AccountId32, amount: TaoBalance}
        TotalIssuanceForced {old: TaoBalance, new: TaoBalance}
    """,
    errors="""
        VestingBalance LiquidityRestrictions InsufficientBalance ExistentialDeposit Expendability
        ExistingVestingSchedule DeadAccount TooManyReserves TooManyHolds TooManyFreezes IssuanceDeactivated DeltaZero
    """,
    constants="""
        ExistentialDeposit: TaoBalance = 500
        MaxLocks: u32 = 50
        MaxReserves: u32 = 50
        MaxFreezes: u32 = 50
    """,
)  # fmt: skip

TRANSACTION_PAYMENT = build(
    TYPES, "TransactionPayment", 6, "pallet_transaction_payment",
    storage="""
        NextFeeMultiplier: FixedMultiplier = 1000000000000000000
        StorageVersion: Releases = "V2"
    """,
    events="TransactionFeePaid {who: AccountId32, actual_fee: TaoBalance, tip: TaoBalance}",
    constants="OperationalFeeMultiplier: u8 = 5",
)  # fmt: skip

UTILITY = build(
    TYPES, "Utility", 11, "pallet_utility",
    calls="""
        0 batch(calls: Vec<RuntimeCall>)
        1 as_derivative(index: u16, call: RuntimeCall)
        2 batch_all(calls: Vec<RuntimeCall>)
        4 force_batch(calls: Vec<RuntimeCall>)
        5 with_weight(call: RuntimeCall, weight: Weight)
        6 if_else(main: RuntimeCall, fallback: RuntimeCall)
    """,
    events="""
        BatchInterrupted {index: u32, error: DispatchError}
        BatchCompleted
        BatchCompletedWithErrors
        ItemCompleted
        ItemFailed {error: DispatchError}
        DispatchedAs {result: Result<(), DispatchError>}
        IfElseMainSuccess
        IfElseFallbackCalled {main_error: DispatchError}
    """,
    errors="TooManyCalls InvalidDerivedAccount",
    constants="batched_calls_limit: u32 = 10922",
)  # fmt: skip

SUDO = build(
    TYPES, "Sudo", 12, "pallet_sudo",
    storage="Key: AccountId32?",
    calls="""
        0 sudo(call: RuntimeCall)
        1 sudo_unchecked_weight(call: RuntimeCall, weight: Weight)
        2 set_key(new: MultiAddress)
        3 sudo_as(who: MultiAddress, call: RuntimeCall)
        4 remove_key()
    """,
    events="""
        Sudid {sudo_result: Result<(), DispatchError>}
        KeyChanged {old: Option<AccountId32>, new: AccountId32}
        KeyRemoved
        SudoAsDone {sudo_result: Result<(), DispatchError>}
    """,
    errors="RequireSudo",
)  # fmt: skip

PALLETS = (SYSTEM, BALANCES, TRANSACTION_PAYMENT, UTILITY, SUDO)
