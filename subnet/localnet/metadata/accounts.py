"""Pallets that let one account act for another or later: Multisig, Preimage, Scheduler, Proxy and SafeMode.

Names, indices and types are the Subtensor's. Not whole: what the SDK reads, and the calls it can submit.
"""

from __future__ import annotations

from subnet.localnet.metadata.pallet import build
from subnet.localnet.metadata.substrate_types import TYPES

PROXY_TYPES = (
    "Any Owner NonCritical NonTransfer Senate NonFungible Triumvirate Governance Staking Registration Transfer"
    " SmallTransfer RootWeights ChildKeys SudoUncheckedSetCode SwapHotkey SubnetLeaseBeneficiary RootClaim"
)
"""In the order of their discriminants."""

ACCOUNT_TYPES = {
    "pallet_multisig::Timepoint": "struct {height: u32, index: u32}",
    "pallet_multisig::Multisig":
        "struct {when: Timepoint, deposit: TaoBalance, depositor: AccountId32, approvals: BoundedVec<AccountId32>}",
    "subtensor_runtime_common::ProxyType": "enum " + " | ".join(PROXY_TYPES.split()),
    "pallet_subtensor_proxy::ProxyDefinition": "struct {delegate: AccountId32, proxy_type: ProxyType, delay: u32}",
    "pallet_subtensor_proxy::Announcement": "struct {real: AccountId32, call_hash: H256, height: u32}",
    "pallet_subtensor_proxy::DepositKind": "enum Proxies | Announcements",
}  # fmt: skip
TYPES.declare(ACCOUNT_TYPES)

MULTISIG = build(
    TYPES, "Multisig", 13, "pallet_multisig",
    storage="Multisigs: AccountId32 twox, [u8; 32] blake2 -> Multisig?",
    calls="""
        0 as_multi_threshold_1(other_signatories: Vec<AccountId32>, call: RuntimeCall)
        1 as_multi(threshold: u16, other_signatories: Vec<AccountId32>, maybe_timepoint: Option<Timepoint>,
            call: RuntimeCall, max_weight: Weight)
        2 approve_as_multi(threshold: u16, other_signatories: Vec<AccountId32>, maybe_timepoint: Option<Timepoint>,
            call_hash: [u8; 32], max_weight: Weight)
        3 cancel_as_multi(threshold: u16, other_signatories: Vec<AccountId32>, timepoint: Timepoint,
            call_hash: [u8; 32])
        4 poke_deposit(threshold: u16, other_signatories: Vec<AccountId32>, call_hash: [u8; 32])
    """,
    events="""
        NewMultisig {approving: AccountId32, multisig: AccountId32, call_hash: [u8; 32]}
        MultisigApproval {approving: AccountId32, timepoint: Timepoint, multisig: AccountId32, call_hash: [u8; 32]}
        MultisigExecuted {approving: AccountId32, timepoint: Timepoint, multisig: AccountId32, call_hash: [u8; 32],
            result: Result<(), DispatchError>}
        MultisigCancelled {cancelling: AccountId32, timepoint: Timepoint, multisig: AccountId32, call_hash: [u8; 32]}
        DepositPoked {who: AccountId32, call_hash: [u8; 32], old_deposit: TaoBalance, new_deposit: TaoBalance}
    """,
    errors="""
        MinimumThreshold AlreadyApproved NoApprovalsNeeded TooFewSignatories TooManySignatories SignatoriesOutOfOrder
        SenderInSignatories NotFound NotOwner NoTimepoint WrongTimepoint UnexpectedTimepoint MaxWeightTooLow
        AlreadyStored
    """,
    constants="""
        DepositBase: TaoBalance = 132000000
        DepositFactor: TaoBalance = 32000000
        MaxSignatories: u32 = 100
    """,
)  # fmt: skip

PREIMAGE = build(
    TYPES, "Preimage", 14, "pallet_preimage",
    storage="PreimageFor: (H256, u32) identity -> BoundedVec<u8>?",
    calls="""
        0 note_preimage(bytes: Vec<u8>)
        1 unnote_preimage(hash: H256)
        2 request_preimage(hash: H256)
        3 unrequest_preimage(hash: H256)
    """,
    events="""
        Noted {hash: H256}
        Requested {hash: H256}
        Cleared {hash: H256}
    """,
    errors="TooBig AlreadyNoted NotAuthorized NotNoted Requested NotRequested TooMany TooFew",
)  # fmt: skip

SCHEDULER = build(
    TYPES, "Scheduler", 15, "pallet_scheduler",
    storage="""
        IncompleteSince: u32?
        Lookup: [u8; 32] twox -> (u32, u32)?
    """,
    calls="""
        0 schedule(when: u32, maybe_periodic: Option<(u32, u32)>, priority: u8, call: RuntimeCall)
        1 cancel(when: u32, index: u32)
        2 schedule_named(id: [u8; 32], when: u32, maybe_periodic: Option<(u32, u32)>, priority: u8, call: RuntimeCall)
        3 cancel_named(id: [u8; 32])
        4 schedule_after(after: u32, maybe_periodic: Option<(u32, u32)>, priority: u8, call: RuntimeCall)
        5 schedule_named_after(id: [u8; 32], after: u32, maybe_periodic: Option<(u32, u32)>, priority: u8,
            call: RuntimeCall)
    """,
    events="""
        Scheduled {when: u32, index: u32}
        Canceled {when: u32, index: u32}
        Dispatched {task: (u32, u32), id: Option<[u8; 32]>, result: Result<(), DispatchError>}
    """,
    errors="FailedToSchedule NotFound TargetBlockNumberInPast RescheduleNoChange Named",
    constants="MaxScheduledPerBlock: u32 = 50",
)  # fmt: skip

PROXY = build(
    TYPES, "Proxy", 16, "pallet_subtensor_proxy",
    storage="""
        Proxies: AccountId32 twox -> (BoundedVec<ProxyDefinition>, TaoBalance)
        Announcements: AccountId32 twox -> (BoundedVec<Announcement>, TaoBalance)
        LastCallResult: AccountId32 twox -> Result<(), DispatchError>?
        RealPaysFeeConsentV1: AccountId32 twox, AccountId32 twox -> ()?
    """,
    calls="""
        0 proxy(real: MultiAddress, force_proxy_type: Option<ProxyType>, call: RuntimeCall)
        1 add_proxy(delegate: MultiAddress, proxy_type: ProxyType, delay: u32)
        2 remove_proxy(delegate: MultiAddress, proxy_type: ProxyType, delay: u32)
        3 remove_proxies()
        4 create_pure(proxy_type: ProxyType, delay: u32, index: u16)
        5 kill_pure(spawner: MultiAddress, proxy_type: ProxyType, index: u16, height: Compact<u32>,
            ext_index: Compact<u32>)
        6 announce(real: MultiAddress, call_hash: H256)
        7 remove_announcement(real: MultiAddress, call_hash: H256)
        8 reject_announcement(delegate: MultiAddress, call_hash: H256)
        9 proxy_announced(delegate: MultiAddress, real: MultiAddress, force_proxy_type: Option<ProxyType>,
            call: RuntimeCall)
        10 poke_deposit()
        11 set_real_pays_fee(delegate: MultiAddress, pays_fee: bool)
    """,
    events="""
        ProxyExecuted {result: Result<(), DispatchError>}
        PureCreated {pure: AccountId32, who: AccountId32, proxy_type: ProxyType, disambiguation_index: u16}
        PureKilled {pure: AccountId32, spawner: AccountId32, proxy_type: ProxyType, disambiguation_index: u16}
        Announced {real: AccountId32, proxy: AccountId32, call_hash: H256}
        ProxyAdded {delegator: AccountId32, delegatee: AccountId32, proxy_type: ProxyType, delay: u32}
        ProxyRemoved {delegator: AccountId32, delegatee: AccountId32, proxy_type: ProxyType, delay: u32}
        DepositPoked {who: AccountId32, kind: DepositKind, old_deposit: TaoBalance, new_deposit: TaoBalance}
        RealPaysFeeSet {real: AccountId32, delegate: AccountId32, pays_fee: bool}
    """,
    errors="""
        TooMany NotFound NotProxy Unproxyable Duplicate NoPermission Unannounced NoSelfProxy
        AnnouncementDepositInvariantViolated InvalidDerivedAccountId
    """,
    constants="""
        ProxyDepositBase: TaoBalance = 60000000
        ProxyDepositFactor: TaoBalance = 33000000
        MaxProxies: u32 = 20
        MaxPending: u32 = 75
        AnnouncementDepositBase: TaoBalance = 36000000
        AnnouncementDepositFactor: TaoBalance = 68000000
    """,
)  # fmt: skip

SAFE_MODE = build(
    TYPES, "SafeMode", 20, "pallet_safe_mode",
    storage="EnteredUntil: u32?",
    calls="""
        2 force_enter()
        5 force_exit()
    """,
    events="""
        Entered {until: u32}
        Exited {reason: ExitReason} = 2
    """,
    errors="Entered Exited NotConfigured NoDeposit AlreadyDeposited CannotReleaseYet CurrencyError",
)  # fmt: skip
TYPES.declare({"pallet_safe_mode::ExitReason": "enum Timeout | Force"})

PALLETS = (MULTISIG, PREIMAGE, SCHEDULER, PROXY, SAFE_MODE)
