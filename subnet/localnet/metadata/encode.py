"""Metadata bytes (V14 and V15) from pallet declarations.

Also makes the types that follow from the set of pallets: RuntimeCall, RuntimeEvent, RuntimeError and each pallet's
enums. Not a decoder. Layout: frame-metadata's RuntimeMetadataV14 and RuntimeMetadataV15.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from subnet.localnet.metadata import scale
from subnet.localnet.metadata.pallet import HASHERS, Constant, Pallet, Storage
from subnet.localnet.metadata.registry import Registry, TypeTable

MAGIC = b"meta"
EXTRINSIC_VERSION = 4

SIGNED_EXTENSIONS = (
    ("CheckNonZeroSender", "()"),
    ("CheckSpecVersion", "u32"),
    ("CheckTxVersion", "u32"),
    ("CheckGenesis", "H256"),
    ("CheckMortality", "H256"),
    ("CheckNonce", "()"),
    ("CheckWeight", "()"),
    ("ChargeTransactionPayment", "()"),
    ("SudoTransactionExtension", "()"),
    ("CheckShieldedTxValidity", "()"),
    ("SubtensorTransactionExtension", "()"),
    ("DrandPriority", "()"),
    ("CheckMetadataHash", "Option<[u8; 32]>"),
)
"""(identifier, what is signed but not sent), in the Subtensor's order; the identifier is also the type's name."""

EXTRA_TYPE = f"({', '.join(name for name, _ in SIGNED_EXTENSIONS)})"
EXTRINSIC_TYPE = f"UncheckedExtrinsic<MultiAddress, RuntimeCall, MultiSignature, {EXTRA_TYPE}>"


@dataclass(frozen=True)
class Method:
    """A runtime-API method: ``inputs`` are (name, type)."""

    name: str
    inputs: tuple[tuple[str, str], ...]
    output: str


Apis = dict[str, tuple[Method, ...]]


def declare_outer_types(types: TypeTable, pallets: Iterable[Pallet]) -> None:
    """Add each pallet's Call, Event and Error enums and the runtime's enums of them to the table."""
    outer: dict[str, list[str]] = {"Call": [], "Event": [], "Error": []}
    for pallet in pallets:
        variants = {
            "Call": [_variant(call.name, call.args, call.index) for call in pallet.calls.values()],
            "Event": [_variant(event.name, event.fields, event.index) for event in pallet.events.values()],
            "Error": [_variant(name, (), index) for name, index in pallet.errors.items()],
        }
        for kind, items in variants.items():
            if items:
                types.declare({f"{pallet.crate}::pallet::{pallet.name}{kind}": "enum " + " | ".join(items)})
                outer[kind].append(f"{pallet.name}({pallet.name}{kind}) = {pallet.index}")
    for kind, items in outer.items():
        types.declare({f"node_subtensor_runtime::Runtime{kind}": "enum " + " | ".join(items)})


def _variant(name: str, fields: Iterable[tuple[str | None, str]], index: int) -> str:
    listed = [(field_name, field_type) for field_name, field_type in fields]
    if not listed:
        return f"{name} = {index}"
    if listed[0][0] is None:
        return f"{name}({', '.join(field_type for _, field_type in listed)}) = {index}"
    return f"{name} {{{', '.join(f'{field_name}: {field_type}' for field_name, field_type in listed)}}} = {index}"


def encode_v14(types: TypeTable, pallets: tuple[Pallet, ...]) -> bytes:
    """RuntimeMetadataPrefixed with a V14 body."""
    registry = Registry(types)
    body = scale.vec(pallets, lambda pallet: _pallet(registry, pallet))
    body += _id(registry, EXTRINSIC_TYPE) + scale.u8(EXTRINSIC_VERSION) + _extensions(registry)
    body += _id(registry, "RuntimeCall")
    return MAGIC + scale.u8(14) + registry.encode() + body


def encode_v15(types: TypeTable, pallets: tuple[Pallet, ...], apis: Apis) -> bytes:
    """RuntimeMetadataPrefixed with a V15 body: V14's content, runtime APIs and the outer enums."""
    registry = Registry(types)
    body = scale.vec(pallets, lambda pallet: _pallet(registry, pallet) + _NO_DOCS)
    body += scale.u8(EXTRINSIC_VERSION)
    for part in ("MultiAddress", "RuntimeCall", "MultiSignature", EXTRA_TYPE):
        body += _id(registry, part)
    body += _extensions(registry) + _id(registry, "RuntimeCall")
    body += scale.vec(apis.items(), lambda api: scale.text(api[0]) + _methods(registry, api[1]) + _NO_DOCS)
    for part in ("RuntimeCall", "RuntimeEvent", "RuntimeError"):
        body += _id(registry, part)
    return MAGIC + scale.u8(15) + registry.encode() + body + scale.vec((), scale.text)


_NO_DOCS = scale.vec((), scale.text)


def _id(registry: Registry, expression: str) -> bytes:
    return scale.compact(registry.id_of(expression))


def _extensions(registry: Registry) -> bytes:
    return scale.vec(
        SIGNED_EXTENSIONS, lambda item: scale.text(item[0]) + _id(registry, item[0]) + _id(registry, item[1])
    )


def _methods(registry: Registry, methods: tuple[Method, ...]) -> bytes:
    return scale.vec(
        methods,
        lambda method: (
            scale.text(method.name)
            + scale.vec(method.inputs, lambda item: scale.text(item[0]) + _id(registry, item[1]))
            + _id(registry, method.output)
            + _NO_DOCS
        ),
    )


def _pallet(registry: Registry, pallet: Pallet) -> bytes:
    storage = None
    if pallet.storage:
        entries = scale.vec(pallet.storage.values(), lambda item: _storage(registry, item))
        storage = scale.text(pallet.name) + entries
    constants = scale.vec(pallet.constants.values(), lambda item: _constant(registry, item))
    call, event, error = (
        scale.option(_id(registry, pallet.name + kind) if items else None)
        for kind, items in (("Call", pallet.calls), ("Event", pallet.events), ("Error", pallet.errors))
    )
    return scale.text(pallet.name) + scale.option(storage) + call + event + constants + error + scale.u8(pallet.index)


def _storage(registry: Registry, item: Storage) -> bytes:
    head = scale.text(item.name) + scale.u8(0 if item.optional else 1)
    if item.keys:
        hashers = scale.vec((hasher for _, hasher in item.keys), lambda hasher: scale.u8(HASHERS[hasher]))
        types = [key for key, _ in item.keys]
        key = types[0] if len(types) == 1 else f"({', '.join(types)})"
        head += scale.u8(1) + hashers + _id(registry, key) + _id(registry, item.value)
    else:
        head += scale.u8(0) + _id(registry, item.value)
    return head + scale.blob(item.default_bytes) + _NO_DOCS


def _constant(registry: Registry, item: Constant) -> bytes:
    return scale.text(item.name) + _id(registry, item.type) + scale.blob(item.value_bytes) + _NO_DOCS
