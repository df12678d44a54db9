"""SCALE metadata of the embedded chain, such that the unmodified bittensor SDK composes calls and decodes answers with it.

Declarative tables in, metadata bytes out; no network, no state, no behaviour. Names, indices and types follow the Subtensor
runtime. To add a pallet: declare its types in a ``TYPES.declare`` table, write its ``build(...)`` tables in a module here, and
add it to ``_ALL`` below; calls and events join RuntimeCall and RuntimeEvent by themselves. To add an item to a pallet, add
its line. Raise ``SPEC_VERSION`` when bytes change: the SDK caches metadata by (genesis hash, spec version).
"""

from __future__ import annotations

from functools import cache

import bittensor_core

from subnet.localnet.metadata import accounts, encode, network, system
from subnet.localnet.metadata.admin import ADMIN_UTILS
from subnet.localnet.metadata.commitments import COMMITMENTS
from subnet.localnet.metadata.encode import Apis, Method
from subnet.localnet.metadata.pallet import Call, Constant, Event, Pallet, Storage
from subnet.localnet.metadata.system import SPEC_NAME, SPEC_VERSION, SS58_PREFIX, TX_VERSION
from subnet.localnet.metadata.substrate_types import TYPES
from subnet.localnet.metadata.subtensor import SUBTENSOR

__all__ = [
    "APIS",
    "PALLETS",
    "SPEC_NAME",
    "SPEC_VERSION",
    "SS58_PREFIX",
    "TX_VERSION",
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

_ALL: tuple[Pallet, ...] = tuple(
    sorted(
        (*system.PALLETS, *accounts.PALLETS, *network.PALLETS, SUBTENSOR, ADMIN_UTILS, COMMITMENTS),
        key=lambda pallet: pallet.index,
    )
)

PALLETS: dict[str, Pallet] = {pallet.name: pallet for pallet in _ALL}
"""Every declared pallet by name, in index order."""

APIS: Apis = {}
"""Runtime APIs: name to methods."""

encode.declare_outer_types(TYPES, _ALL)


@cache
def metadata_v14() -> bytes:
    """``RuntimeMetadataPrefixed`` V14, the answer to ``state_getMetadata``."""
    return encode.encode_v14(TYPES, _ALL)


@cache
def metadata_v15() -> bytes:
    """``RuntimeMetadataPrefixed`` V15, the inner bytes of ``Metadata_metadata_at_version(15)``."""
    return encode.encode_v15(TYPES, _ALL, APIS)


@cache
def runtime() -> bittensor_core.Runtime:
    """The codec built from :func:`metadata_v15`, shared by everything in the process."""
    return bittensor_core.Runtime(metadata_v15(), SPEC_VERSION, TX_VERSION, SS58_PREFIX)
