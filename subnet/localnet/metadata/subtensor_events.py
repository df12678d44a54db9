"""Events, errors and constants of the SubtensorModule pallet.

Errors are complete and in the order of the runtime that SDK 11.3 was generated from, so that its error map gives the
typed error for each. Events leave out what this chain cannot emit; the others keep their index. Not here: when each
is raised.
"""

EVENTS = """
    NetworkAdded(NetUid, u16)
    NetworkRemoved(NetUid)
    StakeAdded(AccountId32, AccountId32, TaoBalance, AlphaBalance, NetUid, u64)
    StakeRemoved(AccountId32, AccountId32, TaoBalance, AlphaBalance, NetUid, u64)
    StakeMoved(AccountId32, AccountId32, NetUid, AccountId32, NetUid, TaoBalance)
    WeightsSet(NetUidStorageIndex, u16)
    NeuronRegistered(NetUid, u16, AccountId32)
    MaxAllowedUidsSet(NetUid, u16) = 9
    MaxWeightLimitSet(NetUid, u16)
    DifficultySet(NetUid, u64)
    AdjustmentIntervalSet(NetUid, u16)
    RegistrationPerIntervalSet(NetUid, u16)
    MaxRegistrationsPerBlockSet(NetUid, u16)
    ActivityCutoffSet(NetUid, u16)
    RhoSet(NetUid, u16)
    AlphaSigmoidSteepnessSet(NetUid, i16)
    KappaSet(NetUid, u16)
    MinAllowedWeightSet(NetUid, u16)
    ValidatorPruneLenSet(NetUid, u64)
    ScalingLawPowerSet(NetUid, u16)
    WeightsSetRateLimitSet(NetUid, u64)
    ImmunityPeriodSet(NetUid, u16)
    BondsMovingAverageSet(NetUid, u64)
    BondsPenaltySet(NetUid, u16)
    BondsResetOnSet(NetUid, bool)
    MaxAllowedValidatorsSet(NetUid, u16)
    AxonServed(NetUid, AccountId32)
    PrometheusServed(NetUid, AccountId32)
    DelegateAdded(AccountId32, AccountId32, PerU16)
    DefaultTakeSet(PerU16)
    WeightsVersionKeySet(NetUid, u64)
    MinDifficultySet(NetUid, u64)
    MaxDifficultySet(NetUid, u64)
    ServingRateLimitSet(NetUid, u64)
    BurnSet(NetUid, TaoBalance)
    MaxBurnSet(NetUid, TaoBalance)
    MinBurnSet(NetUid, TaoBalance)
    MaxEpochsPerBlockSet(u8)
    TxRateLimitSet(u64)
    TxDelegateTakeRateLimitSet(u64)
    TxChildKeyTakeRateLimitSet(u64)
    AdminFreezeWindowSet(u16)
    OwnerHyperparamRateLimitSet(u16)
    MinChildKeyTakeSet(PerU16)
    MinChildKeyTakePerSubnetSet(NetUid, PerU16)
    MaxChildKeyTakeSet(PerU16)
    ChildKeyTakeSet(AccountId32, PerU16)
    Sudid(Result<(), DispatchError>)
    RegistrationAllowed(NetUid, bool)
    PowRegistrationAllowed(NetUid, bool)
    TempoSet(NetUid, u16)
    RAORecycledForRegistrationSet(NetUid, TaoBalance)
    StakeThresholdSet(u64)
    AdjustmentAlphaSet(NetUid, u64)
    SubnetOwnerCutSet(u16) = 57
    NetworkRateLimitSet(u64)
    NetworkImmunityPeriodSet(u64)
    StartCallDelaySet(u64)
    NetworkMinLockCostSet(TaoBalance)
    SubnetLimitSet(u16)
    NetworkLockCostReductionIntervalSet(u64)
    TakeDecreased(AccountId32, AccountId32, PerU16)
    TakeIncreased(AccountId32, AccountId32, PerU16)
    HotkeySwapped {coldkey: AccountId32, old_hotkey: AccountId32, new_hotkey: AccountId32}
    MaxDelegateTakeSet(PerU16)
    MinDelegateTakeSet(PerU16)
    ColdkeySwapAnnounced {who: AccountId32, new_coldkey_hash: H256}
    ColdkeySwapReset {who: AccountId32}
    ColdkeySwapped {old_coldkey: AccountId32, new_coldkey: AccountId32}
    ColdkeySwapDisputed {coldkey: AccountId32}
    SetChildrenScheduled(AccountId32, NetUid, u64, Vec<(u64, AccountId32)>) = 75
    SetChildren(AccountId32, NetUid, Vec<(u64, AccountId32)>)
    ChainIdentitySet(AccountId32)
    SubnetIdentitySet(NetUid)
    SubnetIdentityRemoved(NetUid)
    DissolveNetworkScheduled {account: AccountId32, netuid: NetUid, execution_block: u32}
    ColdkeySwapAnnouncementDelaySet(u32)
    ColdkeySwapReannouncementDelaySet(u32)
    DissolveNetworkScheduleDurationSet(u32)
    CRV3WeightsCommitted(AccountId32, NetUidStorageIndex, H256)
    WeightsCommitted(AccountId32, NetUidStorageIndex, H256)
    WeightsRevealed(AccountId32, NetUidStorageIndex, H256)
    WeightsBatchRevealed(AccountId32, NetUid, Vec<H256>)
    BatchWeightsCompleted(Vec<Compact<NetUid>>, AccountId32)
    BatchCompletedWithErrors
    BatchWeightItemFailed(NetUid, DispatchError)
    StakeTransferred(AccountId32, AccountId32, AccountId32, NetUid, NetUid, TaoBalance)
    StakeSwapped(AccountId32, AccountId32, NetUid, NetUid, TaoBalance)
    TransferToggle(NetUid, bool)
    SubnetOwnerHotkeySet(NetUid, AccountId32)
    FirstEmissionBlockNumberSet(NetUid, u64)
    AlphaRecycled(AccountId32, AccountId32, AlphaBalance, NetUid)
    AlphaBurned(AccountId32, AccountId32, AlphaBalance, NetUid)
    CommitRevealPeriodsSet(NetUid, u64) = 100
    CommitRevealEnabled(NetUid, bool)
    HotkeySwappedOnSubnet {coldkey: AccountId32, old_hotkey: AccountId32, new_hotkey: AccountId32, netuid: NetUid}
    SymbolUpdated {netuid: NetUid, symbol: Vec<u8>} = 105
    CommitRevealVersionSet(u16)
    TimelockedWeightsCommitted(AccountId32, NetUidStorageIndex, H256, u64)
    TimelockedWeightsRevealed(NetUidStorageIndex, AccountId32)
    AutoStakeAdded {netuid: NetUid, destination: AccountId32, hotkey: AccountId32, owner: AccountId32,
        incentive: AlphaBalance}
    IncentiveAlphaEmittedToMiners {netuid: NetUidStorageIndex, emissions: Vec<AlphaBalance>}
    MinAllowedUidsSet(NetUid, u16)
    AutoStakeDestinationSet {coldkey: AccountId32, netuid: NetUid, hotkey: AccountId32}
    MinNonImmuneUidsSet(NetUid, u16)
    AddStakeBurn {netuid: NetUid, hotkey: AccountId32, amount: TaoBalance, alpha: AlphaBalance} = 121
    ColdkeySwapCleared {who: AccountId32}
    TransactionFeePaidWithAlpha {who: AccountId32, netuid: NetUid, alpha_fee: AlphaBalance, tao_amount: TaoBalance}
    BurnHalfLifeSet {netuid: NetUid, burn_half_life: u16}
    BurnIncreaseMultSet {netuid: NetUid, burn_increase_mult: FixedU128}
    AutoParentDelegationEnabledSet {hotkey: AccountId32, enabled: bool}
    StakeLocked {coldkey: AccountId32, hotkey: AccountId32, netuid: NetUid, amount: AlphaBalance}
    StakeUnlocked {coldkey: AccountId32, hotkey: AccountId32, netuid: NetUid, amount: AlphaBalance}
    LockMoved {coldkey: AccountId32, origin_hotkey: AccountId32, destination_hotkey: AccountId32, netuid: NetUid}
    ActivityCutoffFactorMilliSet {netuid: NetUid, factor_milli: u32}
    EpochTriggered {netuid: NetUid, by: AccountId32, fires_at: u64}
    EpochDeferred {netuid: NetUid, from_block: u64, to_block: u64}
    EpochSkipped {netuid: NetUid, block: u64}
    SubnetOwnerChanged {netuid: NetUid, old_coldkey: AccountId32, new_coldkey: AccountId32}
    PerpetualLockUpdated {coldkey: AccountId32, netuid: NetUid, enabled: bool}
    RejectLockedAlphaUpdated {coldkey: AccountId32, enabled: bool}
"""

ERRORS = """
    RootNetworkDoesNotExist InvalidIpType InvalidIpAddress InvalidPort HotKeyNotRegisteredInSubNet
    HotKeyAccountNotExists HotKeyNotRegisteredInNetwork NonAssociatedColdKey NotEnoughStake NotEnoughStakeToWithdraw
    NotEnoughStakeToSetWeights NotEnoughStakeToSetChildkeys NotEnoughBalanceToStake BalanceWithdrawalError
    ZeroBalanceAfterWithdrawn NeuronNoValidatorPermit WeightVecNotEqualSize DuplicateUids UidVecContainInvalidOne
    WeightVecLengthIsLow TooManyRegistrationsThisBlock HotKeyAlreadyRegisteredInSubNet NewHotKeyIsSameWithOld
    NewHotKeyNotCleanForRootSwap InvalidWorkBlock InvalidDifficulty InvalidSeal MaxWeightExceeded
    HotKeyAlreadyDelegate SettingWeightsTooFast IncorrectWeightVersionKey ServingRateLimitExceeded
    UidsLengthExceedUidsInSubNet NetworkTxRateLimitExceeded DelegateTxRateLimitExceeded HotKeySetTxRateLimitExceeded
    StakingRateLimitExceeded SubNetRegistrationDisabled TooManyRegistrationsThisInterval
    TransactorAccountShouldBeHotKey FaucetDisabled NotSubnetOwner RegistrationNotPermittedOnRootSubnet
    StakeTooLowForRoot AllNetworksInImmunity NotEnoughBalanceToPaySwapHotKey NotRootSubnet CanNotSetRootNetworkWeights
    NoNeuronIdAvailable DelegateTakeTooLow DelegateTakeTooHigh NoWeightsCommitFound InvalidRevealCommitHashNotMatch
    CommitRevealEnabled CommitRevealDisabled LiquidAlphaDisabled AlphaHighTooLow AlphaLowOutOfRange
    ColdKeyAlreadyAssociated NotEnoughBalanceToPaySwapColdKey InvalidChild DuplicateChild ProportionOverflow
    TooManyChildren TxRateLimitExceeded ColdkeySwapAnnouncementNotFound ColdkeySwapTooEarly
    ColdkeySwapReannouncedTooEarly AnnouncedColdkeyHashDoesNotMatch ColdkeySwapAlreadyDisputed NewColdKeyIsHotkey
    InvalidChildkeyTake TxChildkeyTakeRateLimitExceeded InvalidIdentity MechanismDoesNotExist StakeUnavailable
    SubnetNotExists TooManyUnrevealedCommits ExpiredWeightCommit RevealTooEarly InputLengthsUnequal
    CommittingWeightsTooFast AmountTooLow InsufficientLiquidity SlippageTooHigh TransferDisallowed
    ActivityCutoffTooLow CallDisabled FirstEmissionBlockNumberAlreadySet NeedWaitingMoreBlocksToStarCall
    NotEnoughAlphaOutToRecycle CannotBurnOrRecycleOnRootSubnet UnableToRecoverPublicKey InvalidRecoveredPublicKey
    SubtokenDisabled HotKeySwapOnSubnetIntervalNotPassed KeepStakeBlockedByCollateral SameNetuid
    InsufficientTaoBalance InvalidLeaseBeneficiary LeaseCannotEndInThePast LeaseNetuidNotFound LeaseDoesNotExist
    LeaseHasNoEndBlock LeaseHasNotEnded Overflow BeneficiaryDoesNotOwnHotkey ExpectedBeneficiaryOrigin
    AdminActionProhibitedDuringWeightsWindow SymbolDoesNotExist SymbolAlreadyInUse IncorrectCommitRevealVersion
    InvalidRevealRound RevealPeriodTooLarge RevealPeriodTooSmall InvalidValue SubnetLimitReached CannotAffordLockCost
    EvmKeyAssociateRateLimitExceeded EvmKeyAssociationLimitExceeded SameAutoStakeHotkeyAlreadySet
    UidMapCouldNotBeCleared TrimmingWouldExceedMaxImmunePercentage ChildParentInconsistency InvalidRootClaimThreshold
    TooManyUIDsPerMechanism VotingPowerTrackingNotEnabled InvalidVotingPowerEmaAlpha Deprecated
    SubnetBuybackRateLimitExceeded NetworkDissolveAlreadyQueued AddStakeBurnRateLimitExceeded ColdkeySwapAnnounced
    ColdkeySwapDisputed ColdkeySwapClearTooEarly DisabledTemporarily RegistrationPriceLimitExceeded LockHotkeyMismatch
    InsufficientStakeForLock NoExistingLock ActiveLockExists CannotUseSystemAccount UnlockAmountTooHigh
    WaitingForDissolvedSubnetCleanup TempoOutOfBounds ActivityCutoffFactorMilliOutOfBounds EpochTriggerAlreadyPending
    AutoEpochAlreadyImminent DynamicTempoBlockedByCommitReveal AccountRejectsLockedAlpha LockIdOverFlow
    StartCallNotReady InsufficientAlphaBalance ColdkeyCollateralIncomplete ColdkeyCollateralPositionsFull
    BasketHasNoWeights RootStakeLocked BetaBasketSeedInProgress RootWeightSettingDisabled RootClaimTooHeavy
    RootWeightCapExceeded BasketDepositPending InvalidBatchLength TooManyStakingHotkeys ColdkeySwapTooHeavy
    BasketConcentrationCapExceeded BasketTradingDisabled BasketTradingFrozen BasketTurnoverBudgetExceeded
    BasketSameSubnet BasketLiquidityCapExceeded BasketMinOutNotMet BasketSwapBatchEmpty CommitPayloadTooLarge
    CommitQueueFull
"""

CONSTANTS = """
    InitialIssuance: TaoBalance
    InitialMinAllowedWeights: u16 = 1024
    InitialEmissionValue: u16
    InitialTempo: u16 = 360
    InitialDifficulty: u64 = 10000000
    InitialMaxDifficulty: u64 = 4611686018427387903
    InitialMinDifficulty: u64 = 10000000
    InitialRAORecycledForRegistration: TaoBalance
    InitialBurn: TaoBalance = 100000000
    InitialMaxBurn: TaoBalance = 100000000000
    InitialMinBurn: TaoBalance = 500000
    InitialMinStake: TaoBalance = 2000000
    MinBurnUpperBound: TaoBalance = 1000000000
    MaxBurnLowerBound: TaoBalance = 100000000
    MinTempo: u16 = 1
    MaxTempo: u16 = 50400
    MinActivityCutoffFactorMilli: u32 = 1000
    MaxActivityCutoffFactorMilli: u32 = 50000
    InitialAdjustmentInterval: u16 = 100
    InitialBondsMovingAverage: u64 = 900000
    InitialBondsPenalty: u16 = 65535
    InitialBondsResetOn: bool
    InitialTargetRegistrationsPerInterval: u16 = 2
    InitialRho: u16 = 10
    InitialAlphaSigmoidSteepness: i16 = 1000
    InitialKappa: u16 = 32767
    InitialMinAllowedUids: u16 = 64
    InitialMaxAllowedUids: u16 = 256
    InitialImmunityPeriod: u16 = 4096
    InitialActivityCutoff: u16 = 5000
    InitialMaxRegistrationsPerBlock: u16 = 1
    InitialPruningScore: u16 = 65535
    InitialMaxAllowedValidators: u16 = 128
    InitialDefaultDelegateTake: u16 = 11796
    InitialMinDelegateTake: u16
    InitialDefaultChildKeyTake: u16
    InitialMinChildKeyTake: u16
    InitialMaxChildKeyTake: u16 = 11796
    InitialWeightsVersionKey: u64
    InitialServingRateLimit: u64 = 50
    InitialTxRateLimit: u64 = 1000
    InitialTxDelegateTakeRateLimit: u64 = 216000
    InitialTxChildKeyTakeRateLimit: u64 = 216000
    InitialAdjustmentAlpha: u64
    InitialNetworkImmunityPeriod: u64 = 1296000
    InitialNetworkMinLockCost: TaoBalance = 1000000000000
    InitialSubnetOwnerCut: u16 = 11796
    InitialNetworkLockReductionInterval: u64 = 100800
    InitialNetworkRateLimit: u64 = 7200
    KeySwapCost: TaoBalance = 100000000
    AlphaHigh: u16 = 58982
    AlphaLow: u16 = 45875
    LiquidAlphaOn: bool
    Yuma3On: bool
    InitialColdkeySwapAnnouncementDelay: u32 = 36000
    InitialColdkeySwapReannouncementDelay: u32 = 7200
    InitialTaoWeight: u64 = 971718665099567868
    InitialEmaPriceHalvingPeriod: u64 = 201600
    InitialStartCallDelay: u64
    KeySwapOnSubnetCost: TaoBalance = 1000000
    HotkeySwapOnSubnetInterval: u64 = 7200
    MaxImmuneUidsPercentage: Percent = 80
    SubtensorPalletId: PalletId = "0x73756274656e7372"
    BurnAccountId: PalletId = "0x6275726e746e7372"
    InitialMaxEpochsPerBlock: u8 = 2
"""
