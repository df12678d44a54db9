"""The named types of the chain: Substrate's own, the currency newtypes and the structs pallets store.

Field names and order are the Subtensor's, since readers go by them. Results of runtime APIs are in api_types.py. Of a
path only the last segment matters to readers; fixed-point numbers are the ``bits`` of substrate-fixed.
"""

from __future__ import annotations

from subnet.localnet.metadata.registry import TypeTable

SUBSTRATE = {
    "sp_core::crypto::AccountId32": "struct ([u8; 32])",
    "primitive_types::H256": "struct ([u8; 32])",
    "primitive_types::H160": "struct ([u8; 20])",
    "Option<T>": "enum None | Some(T)",
    "Result<T, E>": "enum Ok(T) | Err(E)",
    "BTreeMap<K, V>": "struct (Vec<(K, V)>)",
    "BTreeSet<T>": "struct (Vec<T>)",
    "bounded_collections::bounded_vec::BoundedVec<T>": "struct (Vec<T>)",
    "bounded_collections::weak_bounded_vec::WeakBoundedVec<T>": "struct (Vec<T>)",
    "bounded_collections::bounded_btree_set::BoundedBTreeSet<T>": "struct (BTreeSet<T>)",
    "sp_runtime::multiaddress::MultiAddress":
        "enum Id(AccountId32) | Index(Compact<()>) | Raw(Vec<u8>) | Address32([u8; 32]) | Address20([u8; 20])",
    "sp_runtime::MultiSignature": "enum Ed25519([u8; 64]) | Sr25519([u8; 64]) | Ecdsa([u8; 65]) | Eth([u8; 65])",
    "sp_runtime::generic::era::Era":
        "enum Immortal | " + " | ".join(f"Mortal{first}(u8)" for first in range(1, 256)),
    "sp_runtime::generic::unchecked_extrinsic::UncheckedExtrinsic<Address, Call, Signature, Extra>": "struct (Vec<u8>)",
    "sp_runtime::generic::digest::Digest": "struct {logs: Vec<DigestItem>}",
    "sp_runtime::generic::digest::DigestItem":
        "enum PreRuntime([u8; 4], Vec<u8>) = 6 | Consensus([u8; 4], Vec<u8>) = 4 | Seal([u8; 4], Vec<u8>) = 5"
        " | Other(Vec<u8>) = 0 | RuntimeEnvironmentUpdated = 8",
    "sp_runtime::generic::header::Header":
        "struct {parent_hash: H256, number: Compact<u32>, state_root: H256, extrinsics_root: H256, digest: Digest}",
    "sp_runtime::generic::block::Block": "struct {header: Header, extrinsics: Vec<OpaqueExtrinsic>}",
    "sp_runtime::OpaqueExtrinsic": "struct (Vec<u8>)",
    "sp_runtime::DispatchError":
        "enum Other | CannotLookup | BadOrigin | Module(ModuleError) | ConsumerRemaining | NoProviders"
        " | TooManyConsumers | Token(TokenError) | Arithmetic(ArithmeticError) | Transactional(TransactionalError)"
        " | Exhausted | Corruption | Unavailable | RootNotAllowed | Trie(TrieError)",
    "sp_runtime::ModuleError": "struct {index: u8, error: [u8; 4]}",
    "sp_runtime::TokenError":
        "enum FundsUnavailable | OnlyProvider | BelowMinimum | CannotCreate | UnknownAsset | Frozen | Unsupported"
        " | CannotCreateHold | NotExpendable | Blocked",
    "sp_arithmetic::ArithmeticError": "enum Underflow | Overflow | DivisionByZero",
    "sp_runtime::TransactionalError": "enum LimitReached | NoLayer",
    "sp_runtime::proving_trie::TrieError":
        "enum InvalidStateRoot | IncompleteDatabase | ValueAtIncompleteKey | DecoderError | InvalidHash | DuplicateKey"
        " | ExtraneousNode | ExtraneousValue | ExtraneousHashReference | InvalidChildReference | ValueMismatch"
        " | IncompleteProof | RootMismatch | DecodeError",
    "sp_weights::weight_v2::Weight": "struct {ref_time: Compact<u64>, proof_size: Compact<u64>}",
    "sp_weights::RuntimeDbWeight": "struct {read: u64, write: u64}",
    "sp_version::RuntimeVersion":
        "struct {spec_name: str, impl_name: str, authoring_version: u32, spec_version: u32, impl_version: u32,"
        " apis: Vec<([u8; 8], u32)>, transaction_version: u32, system_version: u8}",
    "sp_runtime::ExtrinsicInclusionMode": "enum AllExtrinsics | OnlyInherents",
    "sp_runtime::transaction_validity::TransactionSource": "enum InBlock | Local | External",
    "sp_runtime::transaction_validity::ValidTransaction":
        "struct {priority: u64, requires: Vec<Vec<u8>>, provides: Vec<Vec<u8>>, longevity: u64, propagate: bool}",
    "sp_runtime::transaction_validity::TransactionValidityError":
        "enum Invalid(InvalidTransaction) | Unknown(UnknownTransaction)",
    "sp_runtime::transaction_validity::InvalidTransaction":
        "enum Call | Payment | Future | Stale | BadProof | AncientBirthBlock | ExhaustsResources | Custom(u8)"
        " | BadMandatory | MandatoryValidation | BadSigner | IndeterminateImplicit | UnknownOrigin",
    "sp_runtime::transaction_validity::UnknownTransaction": "enum CannotLookup | NoUnsignedValidator | Custom(u8)",
    "sp_core::OpaqueMetadata": "struct (Vec<u8>)",
    "sp_arithmetic::fixed_point::FixedU128 as FixedMultiplier": "struct (u128)",
    "sp_consensus_slots::Slot": "struct (u64)",
    "frame_support::dispatch::DispatchClass": "enum Normal | Operational | Mandatory",
    "frame_support::dispatch::Pays": "enum Yes | No",
    "frame_support::dispatch::PerDispatchClass<T>": "struct {normal: T, operational: T, mandatory: T}",
    "frame_support::dispatch::PostDispatchInfo": "struct {actual_weight: Option<Weight>, pays_fee: Pays}",
    "frame_support::traits::tokens::misc::BalanceStatus": "enum Free | Reserved",
    "frame_support::traits::messages::RawOrigin": "enum Root | Signed(AccountId32) | None",
    "frame_support::PalletId": "struct ([u8; 8])",
    "frame_system::DispatchEventInfo": "struct {weight: Weight, class: DispatchClass, pays_fee: Pays}",
    "frame_system::AccountInfo":
        "struct {nonce: u32, consumers: u32, providers: u32, sufficients: u32, data: AccountData}",
    "frame_system::EventRecord": "struct {phase: Phase, event: RuntimeEvent, topics: Vec<H256>}",
    "frame_system::Phase": "enum ApplyExtrinsic(u32) | Finalization | Initialization",
    "frame_system::LastRuntimeUpgradeInfo": "struct {spec_version: Compact<u32>, spec_name: str}",
    "frame_system::limits::BlockWeights":
        "struct {base_block: Weight, max_block: Weight, per_class: PerDispatchClass<WeightsPerClass>}",
    "frame_system::limits::WeightsPerClass":
        "struct {base_extrinsic: Weight, max_extrinsic: Option<Weight>, max_total: Option<Weight>,"
        " reserved: Option<Weight>}",
    "frame_system::limits::BlockLength": "struct {max: PerDispatchClass<u32>}",
    "pallet_balances::types::AccountData":
        "struct {free: TaoBalance, reserved: TaoBalance, frozen: TaoBalance, flags: ExtraFlags}",
    "pallet_balances::types::ExtraFlags": "struct (u128)",
    "pallet_balances::types::BalanceLock": "struct {id: [u8; 8], amount: TaoBalance, reasons: Reasons}",
    "pallet_balances::types::Reasons": "enum Fee | Misc | All",
    "pallet_balances::types::AdjustmentDirection": "enum Increase | Decrease",
    "pallet_transaction_payment::Releases": "enum V1Ancient | V2",
    "pallet_transaction_payment::types::RuntimeDispatchInfo":
        "struct {weight: Weight, class: DispatchClass, partial_fee: TaoBalance}",
    "pallet_transaction_payment::types::InclusionFee":
        "struct {base_fee: TaoBalance, len_fee: TaoBalance, adjusted_weight_fee: TaoBalance}",
    "pallet_transaction_payment::types::FeeDetails": "struct {inclusion_fee: Option<InclusionFee>, tip: TaoBalance}",
}  # fmt: skip

EXTENSIONS = {
    "frame_system::extensions::check_non_zero_sender::CheckNonZeroSender": "struct",
    "frame_system::extensions::check_spec_version::CheckSpecVersion": "struct",
    "frame_system::extensions::check_tx_version::CheckTxVersion": "struct",
    "frame_system::extensions::check_genesis::CheckGenesis": "struct",
    "node_subtensor_runtime::check_mortality::CheckMortality": "struct (Era)",
    "node_subtensor_runtime::check_nonce::CheckNonce": "struct (Compact<u32>)",
    "frame_system::extensions::check_weight::CheckWeight": "struct",
    "pallet_transaction_payment::ChargeTransactionPayment": "struct (Compact<TaoBalance>)",
    "node_subtensor_runtime::sudo_wrapper::SudoTransactionExtension": "struct",
    "pallet_shield::extension::CheckShieldedTxValidity": "struct",
    "pallet_subtensor::extensions::subtensor::SubtensorTransactionExtension": "struct",
    "pallet_drand::drand_priority::DrandPriority": "struct",
    "frame_metadata_hash_extension::CheckMetadataHash": "struct {mode: Mode}",
    "frame_metadata_hash_extension::Mode": "enum Disabled | Enabled",
}  # fmt: skip

SUBTENSOR = {
    "subtensor_runtime_common::NetUid": "struct (u16)",
    "subtensor_runtime_common::NetUidStorageIndex": "struct (u16)",
    "subtensor_runtime_common::MechId": "struct (u8)",
    "subtensor_runtime_common::currency::TaoBalance": "struct (u64)",
    "subtensor_runtime_common::currency::AlphaBalance": "struct (u64)",
    "sp_arithmetic::per_things::PerU16": "struct (u16)",
    "sp_arithmetic::per_things::Percent": "struct (u8)",
    "sp_arithmetic::per_things::Perbill": "struct (u32)",
    "substrate_fixed::FixedI128": "struct {bits: i128}",
    "substrate_fixed::FixedU128": "struct {bits: u128}",
}  # fmt: skip

TYPES = TypeTable()
TYPES.declare(SUBSTRATE)
TYPES.declare(EXTENSIONS)
TYPES.declare(SUBTENSOR)
