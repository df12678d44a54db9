"""What happens inside a block: its first steps, each extrinsic's fee, nonce, dispatch and events, and its last
steps.

Not the choice of extrinsics and not headers (chain.py). Order follows FRAME's Executive: the chain's own step, the
timestamp, the signed extrinsics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subnet.localnet import epoch
from subnet.localnet.dispatch import ROOT, Context, DispatchError, Rules, dispatch, is_free
from subnet.localnet.extrinsic import PAYMENT, STALE, Extrinsic, Invalid
from subnet.localnet.ledger import Ledger
from subnet.localnet.metadata.scale import compact
from subnet.localnet.pallets import balances, timelock
from subnet.localnet.state import State

BASE_FEE = 100_000
"""rao per signed extrinsic."""
BYTE_FEE = 10
"""rao per byte of it."""
WEIGHT = {"ref_time": 200_000_000, "proof_size": 4_000}
"""The same for every call: this chain does not meter computation."""

INITIALIZATION = b"\x02"
"""The phase of what a block does by itself, SCALE."""
NO_TOPICS = b"\x00"


def fee(extrinsic_length: int, call: dict[str, Any]) -> int:
    """rao, without the tip."""
    return 0 if is_free(call) else BASE_FEE + BYTE_FEE * extrinsic_length


def dispatch_info(call: dict[str, Any]) -> dict[str, Any]:
    return {"weight": WEIGHT, "class": "Normal", "pays_fee": "No" if is_free(call) else "Yes"}


def nonce(ledger: Ledger, account: str) -> int:
    return ledger.get("System", "Account", account)["nonce"]


def check_payment(ledger: Ledger, extrinsic: Extrinsic) -> None:
    """Invalid (1010) when the signer cannot pay fee and tip."""
    due = fee(len(extrinsic.raw), extrinsic.call) + extrinsic.tip
    if due and balances.free(ledger, extrinsic.signer) < due:
        raise Invalid(PAYMENT)


class Block:
    """A block while it is made."""

    def __init__(self, ledger: Ledger, state: State, rules: Rules, number: int) -> None:
        self._ledger = ledger
        self._state = state
        self._rules = rules
        self.number = number
        self._events: list[bytes] = []
        self._included = 0

    def begin(self, parent: bytes, now_ms: int, pulses: Mapping[int, str]) -> None:
        """Everything before the signed extrinsics; the timestamp is extrinsic 0."""
        system = self._ledger.pallet("System")
        system.put("Number", self.number)
        system.put("ParentHash", parent)
        system.put("BlockHash", self.number - 1, parent)
        expired = self.number - 1 - self._ledger.codec.runtime.constant("System", "BlockHashCount")
        if expired > 0:
            system.remove("BlockHash", expired)
        ctx = self._context(ROOT)
        timelock.hear(ctx, pulses)
        epoch.block_step(ctx)
        self._keep(INITIALIZATION, ctx)
        self._ledger.pallet("Timestamp").put("Now", now_ms)
        ctx = self._context(ROOT)
        ctx.emit("System", "ExtrinsicSuccess", {"dispatch_info": {**dispatch_info(TIMESTAMP), "class": "Mandatory"}})
        self._keep_extrinsic(ctx)

    def apply(self, extrinsic: Extrinsic) -> None:
        """Includes one signed extrinsic: fee and nonce are taken whatever the call does.

        Raises:
            Invalid: it may not be included; the state is as before.
        """
        if extrinsic.nonce != nonce(self._ledger, extrinsic.signer):
            raise Invalid(STALE)
        check_payment(self._ledger, extrinsic)
        ctx = self._context(extrinsic.signer)
        paid = fee(len(extrinsic.raw), extrinsic.call) + extrinsic.tip
        balances.use_nonce(ctx, extrinsic.signer)
        if paid:
            balances.burn(ctx, extrinsic.signer, paid)
            ctx.emit("Balances", "Withdraw", {"who": extrinsic.signer, "amount": paid})
        info = dispatch_info(extrinsic.call)
        try:
            dispatch(ctx, extrinsic.call)
            outcome = ("ExtrinsicSuccess", {"dispatch_info": info})
        except DispatchError as error:
            outcome = ("ExtrinsicFailed", {"dispatch_error": error.value, "dispatch_info": info})
        if paid:
            fields = {"who": extrinsic.signer, "actual_fee": paid, "tip": extrinsic.tip}
            ctx.emit("TransactionPayment", "TransactionFeePaid", fields)
        ctx.emit("System", *outcome)
        self._keep_extrinsic(ctx)

    def finish(self) -> None:
        """Writes the block's events."""
        key = self._ledger.codec.item("System", "Events").prefix
        self._ledger.write(key, compact(len(self._events)) + b"".join(self._events))

    def _context(self, origin: str) -> Context:
        return Context(self._ledger, self._state, self._rules, self.number, origin)

    def _keep(self, phase: bytes, ctx: Context) -> None:
        self._events += [phase + event + NO_TOPICS for event in ctx.events]

    def _keep_extrinsic(self, ctx: Context) -> None:
        self._keep(b"\x00" + self._included.to_bytes(4, "little"), ctx)
        self._included += 1


TIMESTAMP: dict[str, Any] = {"call_module": "Timestamp", "call_function": "set", "call_args": []}
