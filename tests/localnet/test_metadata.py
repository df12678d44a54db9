"""The embedded chain's metadata, read back by the SDK's own codec and compared with what the SDK was generated from."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import bittensor_core
import pytest
from bittensor import error_map
from bittensor._generated import calls as sdk_calls
from bittensor._generated import constants as sdk_constants
from bittensor._generated import errors as sdk_errors
from bittensor._generated import runtime_apis as sdk_apis
from bittensor._generated import storage as sdk_storage
from bittensor._transport import runtime_api
from bittensor._transport.codec import RuntimeCodec, strip_option_opaque_metadata
from bittensor.hyperparams import kind_of
from bittensor.intents.hyperparameters import OWNER_HYPERPARAMETERS
from hypothesis import given, settings
from hypothesis import strategies as st

from subnet.localnet import metadata
from subnet.localnet.metadata import APIS, PALLETS, encode, pallet, scale, values
from subnet.localnet.metadata.apis import parse_apis
from subnet.localnet.metadata.grammar import Array, Expr, Named, Tuple, parse_definition, parse_expression
from subnet.localnet.metadata.registry import Registry, TypeTable
from subnet.localnet.metadata.substrate_types import TYPES

ALICE = bittensor_core.Keypair.create_from_uri("//Alice")
GENESIS, BIRTH = b"\x01" * 32, b"\x02" * 32
GOLDEN_V14 = "ae3000e7f44e2cd0c86af9b5584e50af3103ecc14ee6688c8548d9163c4ebe75"
GOLDEN_V15 = "39c86766dd54158caa909be027c63ff0555cbecc3cec74654aa76ea141deb393"


every_pallet = pytest.mark.parametrize("name", PALLETS)


@pytest.fixture(scope="module", params=["v14", "v15"])
def blob(request: pytest.FixtureRequest) -> bytes:
    return metadata.metadata_v14() if request.param == "v14" else metadata.metadata_v15()


@pytest.fixture(scope="module")
def core(blob: bytes) -> bittensor_core.Runtime:
    return bittensor_core.Runtime(blob, metadata.SPEC_VERSION, metadata.TX_VERSION, metadata.SS58_PREFIX)


@pytest.fixture(scope="module")
def codec(blob: bytes) -> RuntimeCodec:
    return RuntimeCodec(blob, spec_version=metadata.SPEC_VERSION, transaction_version=metadata.TX_VERSION)


def sample(source: str | Expr, depth: int = 0) -> Any:
    """A non-zero value of a type, in the codec's decoded form; calls are given as their bytes."""
    expression = TYPES.resolve(parse_expression(source) if isinstance(source, str) else source)
    if isinstance(expression, Tuple):
        return tuple(sample(item, depth) for item in expression.items)
    if isinstance(expression, Array):
        if TYPES.resolve(expression.item) == Named("u8"):
            return "0x" + "ab" * expression.length
        return [sample(expression.item, depth)] * expression.length
    if expression.name == "RuntimeCall":
        return bytes(metadata.runtime().compose_call("System", "remark", {"remark": b"hi"}))
    if expression.name in ("AccountId32", "MultiAddress"):
        return ALICE.ss58_address
    if expression.name == "bool":
        return True
    if expression.name == "str":
        return "text"
    if expression.name in ("Option", "Compact"):
        return sample(expression.args[0], depth + 1)
    if expression.name == "BTreeMap":
        return {sample(expression.args[0], depth): sample(expression.args[1], depth)}
    if expression.name == "Vec":
        return "text" if TYPES.resolve(expression.args[0]) == Named("u8") else [sample(expression.args[0], depth + 1)]
    if expression.name[0] in "ui" and expression.name[1:].isdigit():
        return 1 if expression.name[0] == "u" else -1
    definition = TYPES.lookup(expression)
    if hasattr(definition, "variants"):
        variant = definition.variants[-1]
        return variant.name if not variant.fields else {variant.name: _fields(variant.fields, depth)}
    return _fields(definition.fields, depth)  # type: ignore[union-attr]


def _fields(fields: Any, depth: int) -> Any:
    if len(fields) == 1 and fields[0].name is None:
        return sample(fields[0].type, depth)
    if fields and fields[0].name is not None:
        return {field.name: sample(field.type, depth) for field in fields}
    return tuple(sample(field.type, depth) for field in fields)


# -- the bytes -----------------------------------------------------------------------------------------------------


def test_the_bytes_are_the_golden_ones() -> None:
    """Whoever changes the metadata sees it here; clients that cached it need another genesis hash or SPEC_VERSION."""
    assert hashlib.sha256(metadata.metadata_v14()).hexdigest() == GOLDEN_V14
    assert hashlib.sha256(metadata.metadata_v15()).hexdigest() == GOLDEN_V15


def test_encoding_again_gives_the_same_bytes() -> None:
    pallets = tuple(PALLETS.values())
    assert encode.encode_v14(TYPES, pallets) == metadata.metadata_v14()
    assert encode.encode_v15(TYPES, pallets, APIS) == metadata.metadata_v15()


def test_both_versions_describe_the_same_pallets() -> None:
    v14 = bittensor_core.Runtime(metadata.metadata_v14(), metadata.SPEC_VERSION, metadata.TX_VERSION, 42)
    v15 = metadata.runtime()
    assert not v14.is_v15 and v15.is_v15
    assert v14.metadata_ir()["pallets"] == v15.metadata_ir()["pallets"]
    assert v14.runtime_api_map() == {} and set(v15.runtime_api_map()) == set(APIS)


def test_the_sdk_unwraps_what_metadata_at_version_answers() -> None:
    answer = b"\x01" + scale.blob(metadata.metadata_v15())
    assert strip_option_opaque_metadata(answer) == metadata.metadata_v15()


def test_only_clock_constants_follow_the_block_time() -> None:
    slow = metadata.runtime(12_000)
    assert slow.constant("Aura", "SlotDuration") == 12_000
    assert slow.constant("Timestamp", "MinimumPeriod") == 6_000
    assert metadata.runtime().constant("Aura", "SlotDuration") == metadata.DEFAULT_SLOT_MS == 250
    assert len(metadata.metadata_v15(12_000)) == len(metadata.metadata_v15())


# -- storage and constants -----------------------------------------------------------------------------------------


@every_pallet
def test_storage_entries_read_back(core: bittensor_core.Runtime, name: str) -> None:
    hashers = {"blake2": "Blake2_128Concat", "twox": "Twox64Concat", "identity": "Identity"}
    for item, declared in PALLETS[name].storage.items():
        entry = core.storage_entry(name, item)
        assert list(entry.param_hashers) == [hashers[hasher] for _, hasher in declared.keys], item
        assert entry.modifier == ("Optional" if declared.optional else "Default"), item
        assert bytes(entry.default_bytes) == declared.default_bytes, item
        if declared.optional:
            assert declared.default is None and declared.default_bytes == b"\x00", item
        else:
            assert core.decode(entry.value_type, declared.default_bytes, True) == declared.default, item
        if item != "Events":
            value = sample(declared.value)
            encoded = bytes(core.encode(entry.value_type, value))
            assert encoded == values.encode(TYPES, parse_expression(declared.value), value), item
            assert bytes(core.encode(entry.value_type, core.decode(entry.value_type, encoded, True))) == encoded, item


@every_pallet
def test_storage_keys_read_back(core: bittensor_core.Runtime, name: str) -> None:
    for item, declared in PALLETS[name].storage.items():
        keys = [sample(key) for key, _ in declared.keys]
        full = bytes(core.storage_key(name, item, keys))
        assert full.startswith(bytes(core.storage_prefix(name, item))), item
        assert [*core.decode_storage_key_params(name, item, full, 0)] == keys, item


@every_pallet
def test_constants_read_back(core: bittensor_core.Runtime, name: str) -> None:
    assert {item: core.constant(name, item) for item in PALLETS[name].constants} == {
        item: declared.value for item, declared in PALLETS[name].constants.items()
    }


def test_known_defaults() -> None:
    storage = PALLETS["SubtensorModule"].storage
    assert storage["Tempo"].default == 360 and storage["Tempo"].default_bytes == b"\x68\x01"
    assert storage["BurnIncreaseMult"].default == {"bits": int(1.26 * 2**64)}
    assert storage["TokenSymbol"].default == "\U0001d70f"
    assert storage["RecycleOrBurn"].default == "Burn" and storage["RecycleOrBurn"].default_bytes == b"\x00"
    assert storage["Keys"].default == bittensor_core.ss58_encode(bytes(32), 42)
    assert storage["Uids"].default is None


# -- calls, events, errors -----------------------------------------------------------------------------------------


@every_pallet
def test_calls_compose_and_decode(core: bittensor_core.Runtime, name: str) -> None:
    for call, declared in PALLETS[name].calls.items():
        arguments = {argument: sample(kind) for argument, kind in declared.args}
        data = bytes(core.compose_call(name, call, arguments))
        assert data[:2] == bytes([PALLETS[name].index, declared.index])
        decoded = core.decode_call(data)
        assert (decoded["call_module"], decoded["call_function"]) == (name, call)
        assert [argument["name"] for argument in decoded["call_args"]] == list(arguments)
        for argument, (_, kind) in zip(decoded["call_args"], declared.args, strict=True):
            if "RuntimeCall" not in kind:
                assert argument["value"] == arguments[argument["name"]], (call, argument)


def test_the_sdk_hyperparameter_setters_compose(codec: RuntimeCodec) -> None:
    for name, (method, is_bool) in OWNER_HYPERPARAMETERS.items():
        arguments = dict(PALLETS["AdminUtils"].calls[method].args)
        if method != "sudo_set_alpha_values":
            assert len(arguments) == 2 and next(iter(arguments)) == "netuid"
        value: Any = {"bits": 1} if kind_of(name) == "fixed128" else is_bool or 1
        value = "Null" if name == "epoch_consensus" else value
        codec.compose_call("AdminUtils", method, dict.fromkeys(arguments, value) | {"netuid": 3})


@every_pallet
def test_event_records_read_back(core: bittensor_core.Runtime, name: str) -> None:
    kind = core.storage_entry("System", "Events").value_type
    for event, declared in PALLETS[name].events.items():
        filled = [sample(field_type) for _, field_type in declared.fields]
        body: Any = filled[0] if len(filled) == 1 else tuple(filled)
        if declared.fields and declared.fields[0][0] is not None:
            body = dict(zip([field for field, _ in declared.fields], filled, strict=True))
        record = {
            "phase": {"ApplyExtrinsic": 3},
            "event": {name: {event: body} if filled else event},
            "topics": [],
        }
        encoded = bytes(core.encode(kind, [record]))
        assert encoded[:6] == b"\x04\x00" + (3).to_bytes(4, "little")
        assert encoded[6:8] == bytes([PALLETS[name].index, declared.index]), event
        (decoded,) = core.decode(kind, encoded, True)
        assert (decoded["module_id"], decoded["event_id"], decoded["extrinsic_idx"]) == (name, event, 3)


@every_pallet
def test_errors_are_the_sdks_own(core: bittensor_core.Runtime, name: str) -> None:
    index = PALLETS[name].index
    known = {code: info.name for (owner, code), info in sdk_errors.ERRORS.items() if owner == index}
    assert {code: error for error, code in PALLETS[name].errors.items()} == known
    assert {code: core.module_error(index, code)[0] for code in known} == known


def test_the_sdk_classifies_every_subtensor_error() -> None:
    assert [name for name in PALLETS["SubtensorModule"].errors if name not in error_map.NAME_TO_CODE] == []


# -- against the SDK's own descriptors -----------------------------------------------------------------------------


def test_declared_items_match_the_sdk_descriptors() -> None:
    """Value identities of storage, names and type identities of arguments: what the SDK's unit handling keys on."""
    for described in metadata.runtime().metadata_ir()["pallets"]:
        name = described["name"]
        for item in described["storage"]:
            assert getattr(getattr(sdk_storage, name), item["name"]).value_type_ident == item["value_type_ident"], item
        for call in described["calls"]:
            parameters = inspect.signature(getattr(getattr(sdk_calls, name), call["name"])).parameters
            assert list(parameters) == [argument["name"] for argument in call["args"]], call["name"]
            for argument in call["args"]:
                identity = str(parameters[argument["name"]].annotation).strip("'")
                assert identity in ("Any", argument["type_ident"]), (call["name"], argument)
        for constant in described["constants"]:
            assert hasattr(getattr(sdk_constants, name), constant), (name, constant)


SUBMITTED = """
    System.remark Balances.transfer_allow_death Balances.transfer_keep_alive Balances.transfer_all Utility.batch
    Utility.batch_all Utility.force_batch Sudo.sudo Proxy.proxy Proxy.add_proxy Proxy.remove_proxy Multisig.as_multi
    MevShield.submit_encrypted Commitments.set_commitment SubtensorModule.register_network SubtensorModule.start_call
    SubtensorModule.burned_register SubtensorModule.root_register SubtensorModule.pow_register
    SubtensorModule.add_stake SubtensorModule.add_stake_limit SubtensorModule.remove_stake
    SubtensorModule.remove_stake_limit SubtensorModule.unstake_all SubtensorModule.unstake_all_alpha
    SubtensorModule.move_stake SubtensorModule.move_stake_limit SubtensorModule.swap_stake
    SubtensorModule.swap_stake_limit SubtensorModule.transfer_stake SubtensorModule.transfer_stake_and_hotkey
    SubtensorModule.serve_axon SubtensorModule.serve_axon_tls SubtensorModule.serve_prometheus
    SubtensorModule.set_weights SubtensorModule.set_mechanism_weights SubtensorModule.commit_weights
    SubtensorModule.reveal_weights SubtensorModule.commit_timelocked_mechanism_weights SubtensorModule.set_children
    SubtensorModule.set_childkey_take SubtensorModule.increase_take SubtensorModule.decrease_take
    SubtensorModule.set_identity SubtensorModule.set_subnet_identity SubtensorModule.swap_hotkey
    SubtensorModule.try_associate_hotkey SubtensorModule.set_coldkey_auto_stake_hotkey AdminUtils.sudo_set_tempo
    AdminUtils.sudo_set_weights_set_rate_limit AdminUtils.sudo_set_max_allowed_validators AdminUtils.sudo_set_kappa
"""
"""What a wallet, a miner, a validator and a subnet owner submit to a subnet; all must be declared."""


def test_everything_a_subnet_submits_is_declared() -> None:
    missing = [call for call in SUBMITTED.split() if (part := call.split("."))[1] not in PALLETS[part[0]].calls]
    assert missing == []


def test_api_methods_exist_in_the_sdk() -> None:
    for api, methods in APIS.items():
        for method in methods:
            assert hasattr(getattr(sdk_apis, api), method.name), (api, method.name)


# -- extrinsics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["00", {"period": 64, "current": 100}])
def test_signed_extrinsic_decodes_and_verifies(codec: RuntimeCodec, era: Any) -> None:
    call = codec.compose_call("Balances", "transfer_keep_alive", {"dest": ALICE.ss58_address, "value": 10**9})
    terms = {"era": era, "nonce": 5, "tip": 7, "tip_asset_id": None}
    hashes = {"genesis_hash": "0x" + GENESIS.hex(), "era_block_hash": "0x" + BIRTH.hex()}
    payload = codec.signature_payload(call, **terms, **hashes)
    signature = ALICE.sign(payload)
    data, _ = codec.encode_signed_extrinsic(
        call, public_key=ALICE.public_key, signature=signature, signature_version=1, **terms
    )
    decoded = codec.decode_extrinsic(data)
    assert decoded["address"] == ALICE.ss58_address
    assert (decoded["nonce"], decoded["tip"]) == (5, 7)
    assert decoded["era"] == ("00" if era == "00" else (64, 36))
    assert decoded["signature"] == {"Sr25519": "0x" + bytes(signature).hex()}
    assert decoded["call"]["call_function"] == "transfer_keep_alive"
    _, extra, additional = codec.signature_payload_parts(call, **terms, **hashes)
    assert payload == call.data + extra + additional
    versions = metadata.SPEC_VERSION.to_bytes(4, "little") + metadata.TX_VERSION.to_bytes(4, "little")
    assert additional == versions + GENESIS + BIRTH + b"\x00"
    assert ALICE.verify(payload, signature)


def test_signed_extensions_are_those_the_sdk_can_fill(codec: RuntimeCodec) -> None:
    assert codec.signed_extension_identifiers() == [name for name, _ in encode.SIGNED_EXTENSIONS]
    assert codec.extrinsic_version == 4
    call = codec.compose_call("System", "remark", {"remark": "0x00"})
    terms = {"era": "00", "nonce": 0, "tip": 0, "tip_asset_id": None, "metadata_hash": b"\x09" * 32}
    _, extra, additional = codec.signature_payload_parts(
        call, **terms, genesis_hash="0x" + GENESIS.hex(), era_block_hash="0x" + BIRTH.hex()
    )
    assert extra[-1] == 1 and additional[-33:] == b"\x01" + b"\x09" * 32


# -- runtime APIs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_api_results_read_back_through_the_sdk(api: str) -> None:
    codec = RuntimeCodec(metadata.metadata_v15(), spec_version=1, transaction_version=1)
    for method in APIS[api]:
        declared = codec.runtime_api_map[api][method.name]
        assert [name for name, _ in declared["inputs"]] == [name for name, _ in method.inputs]
        output = parse_expression(method.output)
        for value in (sample(method.output), values.zero(TYPES, output)):
            encoded = bytes(metadata.runtime().encode(declared["output"], value))
            assert encoded == values.encode(TYPES, output, value), method.name
            assert runtime_api.decode_runtime_api_result(codec, api, method.name, encoded) == value, method.name
        if not any(kind.startswith("UncheckedExtrinsic") for _, kind in method.inputs):
            arguments = [sample(kind) for _, kind in method.inputs]
            typed = zip(method.inputs, arguments, strict=True)
            if api != "TransactionPaymentCallApi":
                expected = b"".join(values.encode(TYPES, parse_expression(kind), value) for (_, kind), value in typed)
                assert runtime_api.encode_runtime_api_params(codec, api, method.name, arguments) == expected.hex()


# -- the encoders and the table language ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_compact_agrees_with_the_codec(value: int) -> None:
    assert scale.compact(value) == bytes(metadata.runtime().encode("Compact", value))


@pytest.mark.parametrize("value", [-1, 1 << 536])
def test_compact_refuses_what_it_cannot_hold(value: int) -> None:
    with pytest.raises(ValueError, match="compact integer"):
        scale.compact(value)


names = st.sampled_from(["u8", "u64", "bool", "NetUid", "AccountId32"])
expressions = st.recursive(
    names.map(Named),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(Tuple),
        st.builds(Array, inner, st.integers(0, 9)),
        inner.map(lambda item: Named("Vec", (item,))),
        inner.map(lambda item: Named("Option", (item,))),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(expressions)
def test_expression_text_parses_to_itself(expression: Expr) -> None:
    assert parse_expression(str(expression)) == expression


@pytest.mark.parametrize(
    "source", ["", "Vec<u8", "[u8; x]", "struct {a u8}", "u8 u8", "enum A | = 3", "Vec<u8>>", "a-b"]
)
def test_a_type_that_does_not_parse_is_named(source: str) -> None:
    with pytest.raises(ValueError):
        parse_definition(source)


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("storage", "A: NetUid md5 -> u8", "unknown hasher 'md5'"),
        ("storage", "A: -> u8", "a map has keys"),
        ("storage", "A: u8 = x y", "cannot read the value"),
        ("calls", "remark(x: u8)", "a call is"),
        ("calls", "1 remark(x)", "expected 'name: Type"),
        ("events", "A - B", "an event is"),
    ],
)
def test_a_bad_table_line_is_named(table: str, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pallet.build(TYPES, "Bad", 99, "pallet_bad", **{table: line})


def test_a_bad_api_line_is_named() -> None:
    with pytest.raises(ValueError, match="a method is"):
        parse_apis("Core\n    version -> u32\n")


def test_types_are_declared_once_and_before_use() -> None:
    types = TypeTable()
    types.declare({"a::Thing": "struct (u8)", "b::Thing as OtherThing": "struct (u16)"})
    assert types.path("Thing") == ("a", "Thing") and types.path("OtherThing") == ("b", "Thing")
    with pytest.raises(ValueError, match="declared twice"):
        types.declare({"c::Thing": "struct (u8)"})
    with pytest.raises(KeyError, match="not declared"):
        Registry(types).id_of("Vec<Nothing>")
    with pytest.raises(KeyError, match="takes 0 arguments"):
        Registry(types).id_of("Thing<u8>")


def test_recursive_types_close() -> None:
    types = TypeTable()
    types.declare({"a::Tree": "struct {leaves: Vec<Tree>}"})
    registry = Registry(types)
    assert registry.id_of("Tree") == registry.id_of("Tree") == 0
    assert registry.id_of("Vec<Tree>") == 1


@pytest.mark.parametrize(
    ("kind", "value"), [("u8", 256), ("[u8; 2]", "0xaabbcc"), ("RecycleOrBurnEnum", "Keep"), ("[u16; 2]", [1])]
)
def test_a_value_that_is_not_of_its_type_is_refused(kind: str, value: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        values.encode(TYPES, parse_expression(kind), value)
