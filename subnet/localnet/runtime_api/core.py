"""The APIs every Substrate runtime has: version, metadata, nonces and fees."""

from __future__ import annotations

from bittensor_core import ss58_encode

from subnet.localnet import executive
from subnet.localnet.extrinsic import Invalid, parse
from subnet.localnet.metadata import scale
from subnet.localnet.runtime import VERSION
from subnet.localnet.runtime_api import BadInput, Call, raw_api


@raw_api("Core_version")
def version(call: Call, data: bytes) -> bytes:
    numbers = (VERSION["specVersion"], VERSION["implVersion"])
    return (
        scale.text(VERSION["specName"])
        + scale.text(VERSION["implName"])
        + scale.u32(VERSION["authoringVersion"])
        + b"".join(map(scale.u32, numbers))
        + scale.vec((), scale.text)
        + scale.u32(VERSION["transactionVersion"])
        + scale.u8(VERSION["stateVersion"])
    )


@raw_api("Metadata_metadata")
def metadata(call: Call, data: bytes) -> bytes:
    return scale.blob(call.runtime.v14)


@raw_api("Metadata_metadata_at_version")
def metadata_at_version(call: Call, data: bytes) -> bytes:
    if len(data) != 4:
        raise BadInput("a u32 was expected")
    known = {14: call.runtime.v14, 15: call.runtime.v15}.get(int.from_bytes(data, "little"))
    return scale.option(None if known is None else scale.blob(known))


@raw_api("Metadata_metadata_versions")
def metadata_versions(call: Call, data: bytes) -> bytes:
    return scale.vec((14, 15), scale.u32)


@raw_api("AccountNonceApi_account_nonce")
def account_nonce(call: Call, data: bytes) -> bytes:
    if len(data) != 32:
        raise BadInput("an account id was expected")
    return scale.u32(executive.nonce(call.ledger, ss58_encode(data, call.runtime.codec.ss58_format)))


@raw_api("TransactionPaymentApi_query_info")
def query_info(call: Call, data: bytes) -> bytes:
    """RuntimeDispatchInfo of an extrinsic (whose signature may be blank), followed by its length as u32."""
    try:
        extrinsic = parse(data[:-4], call.runtime.codec)
    except Invalid as error:
        raise BadInput(error.detail) from error
    weight = scale.compact(executive.WEIGHT["ref_time"]) + scale.compact(executive.WEIGHT["proof_size"])
    fee = executive.fee(len(extrinsic.raw), extrinsic.call)
    return weight + scale.u8(0) + scale.integer(fee, 64)
