"""SCALE metadata of the embedded chain: by it the unmodified bittensor SDK composes calls and decodes answers.

Declarative tables in, metadata bytes out; no network, no state, no behaviour. Names, indices and types follow the
Subtensor runtime, as SDK 11.3 knows it.

To add a pallet: declare its types in a ``TYPES.declare`` table, write its ``build(...)`` tables in a module here and
add it to ``_STATIC``; its calls, events and errors join RuntimeCall, RuntimeEvent and RuntimeError by themselves. To
add an item to a pallet, add its line. The SDK caches metadata on disk by (genesis hash, spec version), so whatever
changes the bytes, the block time included, must change the genesis hash or ``SPEC_VERSION``.
"""

from __future__ import annotations

from functools import cache

import bittensor_core

from subnet.localnet.metadata import accounts, api_types, encode, network, system
from subnet.localnet.metadata.admin import ADMIN_UTILS
from subnet.localnet.metadata.apis import APIS
from subnet.localnet.metadata.commitments import COMMITMENTS
from subnet.localnet.metadata.encode import Method
from subnet.localnet.metadata.pallet import Call, Constant, Event, Pallet, Storage
from subnet.localnet.metadata.substrate_types import TYPES
from subnet.localnet.metadata.subtensor import SUBTENSOR
from subnet.localnet.metadata.system import DEFAULT_SLOT_MS, SPEC_NAME, SPEC_VERSION, SS58_PREFIX, TX_VERSION

__all__ = [
    "APIS",
    "DEFAULT_SLOT_MS",
    "PALLETS",
    "SPEC_NAME",
    "SPEC_VERSION",
    "SS58_PREFIX",
    "TX_VERSION",
    "TYPES",
    "Call",
    "Constant",
    "Event",
    "Method",
    "Pallet",
    "Storage",
    "metadata_v14",
    "metadata_v15",
    "runtime",
]

_STATIC = (*system.PALLETS, *accounts.PALLETS, *network.PALLETS, SUBTENSOR, ADMIN_UTILS, COMMITMENTS)


def _pallets(slot_ms: int) -> tuple[Pallet, ...]:
    return tuple(sorted((*_STATIC, *system.clock_pallets(slot_ms)), key=lambda pallet: pallet.index))


PALLETS: dict[str, Pallet] = {pallet.name: pallet for pallet in _pallets(DEFAULT_SLOT_MS)}
"""Every declared pallet by name, in index order. Constants that follow from the block time are those of the default."""

TYPES.declare(api_types.API_TYPES)
encode.declare_outer_types(TYPES, PALLETS.values())


@cache
def metadata_v14(slot_ms: int = DEFAULT_SLOT_MS) -> bytes:
    """``RuntimeMetadataPrefixed`` V14, the answer to ``state_getMetadata``, for a block time in milliseconds."""
    return encode.encode_v14(TYPES, _pallets(slot_ms))


@cache
def metadata_v15(slot_ms: int = DEFAULT_SLOT_MS) -> bytes:
    """``RuntimeMetadataPrefixed`` V15, the inner bytes of ``Metadata_metadata_at_version(15)``."""
    return encode.encode_v15(TYPES, _pallets(slot_ms), APIS)


@cache
def runtime(slot_ms: int = DEFAULT_SLOT_MS) -> bittensor_core.Runtime:
    """The codec built from :func:`metadata_v15`, shared by everything in the process."""
    return bittensor_core.Runtime(metadata_v15(slot_ms), SPEC_VERSION, TX_VERSION, SS58_PREFIX)
