"""Storage of the SubtensorModule pallet: one line per item, with the default a reader of an absent key gets.

Names, keys, hashers, types and defaults are the Subtensor's: its production values, not its fast-runtime ones. Not
the whole pallet: what the SDK reads and what the ledger keeps. Items of migrations, flows and baskets are left out.
"""

CHAIN = """
    BlockEmission: u64 = 1000000000
    TotalIssuance: TaoBalance
    TotalStake: TaoBalance
    TotalNetworks: u16
    SubnetLimit: u16 = 128
    TaoWeight: u64 = 971718665099567868
    NetworkImmunityPeriod: u64 = 1296000
    NetworkMinLockCost: TaoBalance = 1000000000000
    NetworkLastLockCost: TaoBalance = 1000000000000
    NetworkLockReductionInterval: u64 = 100800
    NetworkRateLimit: u64 = 7200
    SubnetOwnerCut: u16 = 11796
    StartCallDelay: u64
    TxRateLimit: u64 = 1000
    TxDelegateTakeRateLimit: u64 = 216000
    TxChildkeyTakeRateLimit: u64 = 216000
    WeightsVersionKeyRateLimit: u64 = 5
    MaxDelegateTake: PerU16 = 11796
    MinDelegateTake: PerU16
    MaxChildkeyTake: PerU16 = 11796
    MinChildkeyTake: PerU16
    MinActivityCutoff: u16 = 360
    AdminFreezeWindow: u16 = 10
    OwnerHyperparamRateLimit: u16 = 2
    NominatorMinRequiredStake: u64
    StakeThreshold: u64
    CommitRevealWeightsVersion: u16 = 4
    MaxMechanismCount: MechId = 2
    MaxEpochsPerBlock: u8 = 2
    PendingChildKeyCooldown: u64 = 7200
    SubnetMovingAlpha: FixedI128 = {'bits': 12884}
    MaturityRate: u64 = 934866
    UnlockRate: u64 = 934866
    ColdkeySwapAnnouncementDelay: u32 = 36000
    ColdkeySwapReannouncementDelay: u32 = 7200
    RootStakeUnlockInterval: u64
    DissolveCleanupQueue: Vec<NetUid>
    CurrentDissolveCleanupStatus: DissolveCleanupStatus?
    NetworkRegistrationQueue: Vec<NetworkRegistrationInfo>
"""

SUBNETS = """
    NetworksAdded: NetUid identity -> bool
    NetworkRegisteredAt: NetUid identity -> u64
    SubnetOwner: NetUid identity -> AccountId32
    SubnetOwnerHotkey: NetUid identity -> AccountId32
    SubnetMechanism: NetUid identity -> u16
    SubnetworkN: NetUid identity -> u16
    SubnetIdentitiesV3: NetUid blake2 -> SubnetIdentityV3?
    TokenSymbol: NetUid identity -> Vec<u8> = "𝜏"
    SubtokenEnabled: NetUid identity -> bool
    FirstEmissionBlockNumber: NetUid identity -> u64?
    SubnetEmissionEnabled: NetUid identity -> bool = True
    SubnetLocked: NetUid identity -> TaoBalance
    RegisteredSubnetCounter: NetUid identity -> u64
    MechanismCountCurrent: NetUid twox -> MechId = 1
    MechanismEmissionSplit: NetUid twox -> Vec<u16>?
    SubnetEpochConsensus: NetUid identity -> EpochConsensus
    SubnetLeases: u32 twox -> SubnetLease?
    RAORecycledForRegistration: NetUid identity -> TaoBalance
"""

EPOCHS = """
    Tempo: NetUid identity -> u16 = 360
    LastEpochBlock: NetUid identity -> u64
    PendingEpochAt: NetUid identity -> u64
    SubnetEpochIndex: NetUid identity -> u64
    BlocksSinceLastStep: NetUid identity -> u64
    PendingServerEmission: NetUid identity -> AlphaBalance
    PendingValidatorEmission: NetUid identity -> AlphaBalance
    PendingOwnerCut: NetUid identity -> AlphaBalance
    LastAdjustmentBlock: NetUid identity -> u64
    LastRateLimitedBlock: RateLimitKey identity -> u64
"""

POOLS = """
    SubnetTAO: NetUid identity -> TaoBalance
    SubnetAlphaIn: NetUid identity -> AlphaBalance
    SubnetAlphaOut: NetUid identity -> AlphaBalance
    SubnetProtocolAlpha: NetUid identity -> AlphaBalance
    SubnetTaoInEmission: NetUid identity -> TaoBalance
    SubnetAlphaInEmission: NetUid identity -> AlphaBalance
    SubnetAlphaOutEmission: NetUid identity -> AlphaBalance
    SubnetVolume: NetUid identity -> u128
    SubnetMovingPrice: NetUid identity -> FixedI128
    SubnetEmaTaoFlow: NetUid identity -> (u64, FixedI128)?
    EMAPriceHalvingBlocks: NetUid identity -> u64 = 201600
"""

HYPERPARAMETERS = """
    Rho: NetUid identity -> u16 = 10
    Kappa: NetUid identity -> u16 = 32767
    ImmunityPeriod: NetUid identity -> u16 = 4096
    ActivityCutoff: NetUid identity -> u16 = 5000
    ActivityCutoffFactorMilli: NetUid identity -> u32 = 13889
    MinAllowedWeights: NetUid identity -> u16 = 1024
    MaxWeightsLimit: NetUid identity -> u16 = 65535
    WeightsVersionKey: NetUid identity -> u64
    WeightsSetRateLimit: NetUid identity -> u64 = 100
    MinAllowedUids: NetUid identity -> u16 = 64
    MaxAllowedUids: NetUid identity -> u16 = 256
    MaxAllowedValidators: NetUid identity -> u16 = 128
    MinNonImmuneUids: NetUid identity -> u16 = 10
    ImmuneOwnerUidsLimit: NetUid identity -> u16 = 1
    BondsMovingAverage: NetUid identity -> u64 = 900000
    BondsPenalty: NetUid identity -> u16 = 65535
    BondsResetOn: NetUid identity -> bool
    LiquidAlphaOn: NetUid blake2 -> bool
    LiquidAlphaConsensusMode: NetUid identity -> ConsensusMode = "Auto"
    AlphaValues: NetUid identity -> (u16, u16) = (45875, 58982)
    AlphaSigmoidSteepness: NetUid identity -> i16 = 1000
    Yuma3On: NetUid blake2 -> bool
    CommitRevealWeightsEnabled: NetUid identity -> bool = True
    RevealPeriodEpochs: NetUid twox -> u64 = 1
    ServingRateLimit: NetUid identity -> u64 = 50
    TransferToggle: NetUid identity -> bool = True
    RecycleOrBurn: NetUid identity -> RecycleOrBurnEnum = "Burn"
    OwnerCutEnabled: NetUid identity -> bool = True
    OwnerCutAutoLockEnabled: NetUid identity -> bool
    MinChildkeyTakePerSubnet: NetUid identity -> PerU16
    NetworkRegistrationAllowed: NetUid identity -> bool = True
    NetworkPowRegistrationAllowed: NetUid identity -> bool = True
    AdjustmentInterval: NetUid identity -> u16 = 100
    AdjustmentAlpha: NetUid identity -> u64
    TargetRegistrationsPerInterval: NetUid identity -> u16 = 2
    MaxRegistrationsPerBlock: NetUid identity -> u16 = 1
    Burn: NetUid identity -> TaoBalance = 100000000
    MinBurn: NetUid identity -> TaoBalance = 500000
    MaxBurn: NetUid identity -> TaoBalance = 100000000000
    BurnHalfLife: NetUid identity -> u16 = 360
    BurnIncreaseMult: NetUid identity -> FixedU128 = {'bits': 23242897532874035200}
    Difficulty: NetUid identity -> u64 = 10000000
    MinDifficulty: NetUid identity -> u64 = 10000000
    MaxDifficulty: NetUid identity -> u64 = 4611686018427387903
    CollateralLockShare: NetUid identity -> u16
    CollateralDrainRatio: NetUid identity -> FixedU128 = {'bits': 18446744073709551616}
"""

REGISTRATIONS = """
    RegistrationsThisBlock: NetUid identity -> u16
    RegistrationsThisInterval: NetUid identity -> u16
    BurnRegistrationsThisInterval: NetUid identity -> u16
    POWRegistrationsThisInterval: NetUid identity -> u16
    LastPowRegistrationBlock: AccountId32 blake2 -> u64
"""

NEURONS = """
    Uids: NetUid identity, AccountId32 blake2 -> u16?
    Keys: NetUid identity, u16 identity -> AccountId32
    IsNetworkMember: AccountId32 blake2, NetUid identity -> bool
    BlockAtRegistration: NetUid identity, u16 identity -> u64
    Active: NetUid identity -> Vec<bool>
    ValidatorPermit: NetUid identity -> Vec<bool>
    ValidatorTrust: NetUid identity -> Vec<PerU16>
    Consensus: NetUid identity -> Vec<PerU16>
    Incentive: NetUidStorageIndex identity -> Vec<PerU16>
    Dividends: NetUid identity -> Vec<PerU16>
    Emission: NetUid identity -> Vec<AlphaBalance>
    LastUpdate: NetUidStorageIndex identity -> Vec<u64>
    Weights: NetUidStorageIndex identity, u16 identity -> Vec<(u16, u16)>
    Bonds: NetUidStorageIndex identity, u16 identity -> Vec<(u16, u16)>
    Axons: NetUid identity, AccountId32 blake2 -> AxonInfo?
    Prometheus: NetUid identity, AccountId32 blake2 -> PrometheusInfo?
    WeightCommits: NetUidStorageIndex twox, AccountId32 twox -> Vec<(H256, u64, u64, u64)>?
    TimelockedWeightCommits: NetUidStorageIndex twox, u64 twox -> Vec<(AccountId32, u64, BoundedVec<u8>, u64)>
    AssociatedEvmAddress: NetUid twox, u16 twox -> (H160, u64)?
"""

KEYS = """
    Owner: AccountId32 blake2 -> AccountId32
    OwnedHotkeys: AccountId32 blake2 -> Vec<AccountId32>
    StakingHotkeys: AccountId32 blake2 -> Vec<AccountId32>
    IdentitiesV2: AccountId32 blake2 -> ChainIdentityV2?
    Delegates: AccountId32 blake2 -> PerU16 = 11796
    AccountFlags: AccountId32 blake2 -> u128
    AutoStakeDestination: AccountId32 blake2, NetUid identity -> AccountId32?
    AutoParentDelegationEnabled: AccountId32 blake2 -> bool = True
    ColdkeySwapAnnouncements: AccountId32 twox -> (u32, H256)?
    ColdkeySwapDisputes: AccountId32 twox -> u32?
    LastTxBlock: AccountId32 identity -> u64
    LastTxBlockChildKeyTake: AccountId32 identity -> u64
    LastTxBlockDelegateTake: AccountId32 identity -> u64
    TransactionKeyLastBlock: AccountId32 blake2, NetUid identity, u16 identity -> u64
"""

STAKE = """
    AlphaV2: AccountId32 blake2, AccountId32 blake2, NetUid identity -> SafeFloat
    TotalHotkeyAlpha: AccountId32 blake2, NetUid identity -> AlphaBalance
    TotalAlphaStaked: NetUid identity -> AlphaBalance
    AlphaDividendsPerSubnet: NetUid identity, AccountId32 blake2 -> AlphaBalance
    LastColdkeyHotkeyStakeBlock: AccountId32 twox, AccountId32 twox -> u64?
    RootClaimableThreshold: NetUid blake2 -> FixedI128 = {'bits': 2147483648000000}
    MinerCollateral: NetUid identity, AccountId32 blake2, AccountId32 blake2 -> MinerCollateralState?
"""

CHILDREN = """
    ChildKeys: AccountId32 blake2, NetUid identity -> Vec<(u64, AccountId32)>
    ParentKeys: AccountId32 blake2, NetUid identity -> Vec<(u64, AccountId32)>
    PendingChildKeys: NetUid identity, AccountId32 blake2 -> (Vec<(u64, AccountId32)>, u64)
    ChildkeyTake: AccountId32 blake2, NetUid identity -> PerU16
    ChildkeyThresholdSuspended: AccountId32 blake2 -> ()?
"""

LOCKS = """
    Lock: AccountId32 blake2, NetUid identity, AccountId32 blake2 -> LockState?
    LockingColdkeys: NetUid identity, AccountId32 blake2, AccountId32 blake2 -> ()?
    HotkeyLock: NetUid identity, AccountId32 blake2 -> LockState?
    DecayingHotkeyLock: NetUid identity, AccountId32 blake2 -> LockState?
    OwnerLock: NetUid identity -> LockState?
    DecayingOwnerLock: NetUid identity -> LockState?
    DecayingLock: AccountId32 blake2, NetUid identity -> bool?
"""

STORAGE = CHAIN + SUBNETS + EPOCHS + POOLS + HYPERPARAMETERS + REGISTRATIONS + NEURONS + KEYS + STAKE + CHILDREN + LOCKS
