"""TAO: accounts, transfers, minting and burning.

Balances live in System.Account, as on the Subtensor; total issuance is kept here and in SubtensorModule alike. No
locks or freezes: nothing on this chain makes them.
"""

from __future__ import annotations

from typing import Any

from subnet.localnet.dispatch import Context, DispatchError, call
from subnet.localnet.ledger import Ledger

EXISTENTIAL_DEPOSIT = 500
"""rao an account must hold to exist."""

FUNDS_UNAVAILABLE = {"Token": "FundsUnavailable"}
NOT_EXPENDABLE = {"Token": "NotExpendable"}
BELOW_MINIMUM = {"Token": "BelowMinimum"}


def account(ledger: Ledger, who: str) -> dict[str, Any]:
    return ledger.get("System", "Account", who)


def free(ledger: Ledger, who: str) -> int:
    """Spendable rao."""
    return account(ledger, who)["data"]["free"]


def use_nonce(ctx: Context, who: str) -> None:
    record = account(ctx.ledger, who)
    ctx.ledger.put("System", "Account", (who,), {**record, "nonce": record["nonce"] + 1})


def mint(ctx: Context, who: str, amount: int) -> None:
    """Creates rao."""
    _issue(ctx, amount)
    _credit(ctx, who, amount)


def burn(ctx: Context, who: str, amount: int) -> None:
    """Destroys rao of an account; Token.FundsUnavailable when it has less."""
    _debit(ctx, who, amount)
    _issue(ctx, -amount)


def move(ctx: Context, source: str, dest: str, amount: int) -> None:
    """Moves rao without an event: in and out of a subnet's pool, which has events of its own."""
    if amount:
        _debit(ctx, source, amount)
        _credit(ctx, dest, amount)


def transfer(ctx: Context, source: str, dest: str, amount: int, *, keep_alive: bool) -> None:
    """Token errors as FRAME's: FundsUnavailable, NotExpendable (keep_alive), BelowMinimum (for the receiver)."""
    left = free(ctx.ledger, source) - amount
    if left < 0:
        raise DispatchError(FUNDS_UNAVAILABLE)
    if keep_alive and left < EXISTENTIAL_DEPOSIT:
        raise DispatchError(NOT_EXPENDABLE)
    if source != dest:
        if free(ctx.ledger, dest) + amount < EXISTENTIAL_DEPOSIT:
            raise DispatchError(BELOW_MINIMUM)
        _debit(ctx, source, amount)
        _credit(ctx, dest, amount)
    ctx.emit("Balances", "Transfer", {"from": source, "to": dest, "amount": amount})


@call("Balances", "transfer_allow_death")
def transfer_allow_death(ctx: Context, dest: str, value: int) -> None:
    transfer(ctx, ctx.signed(), dest, value, keep_alive=False)


@call("Balances", "transfer_keep_alive")
def transfer_keep_alive(ctx: Context, dest: str, value: int) -> None:
    transfer(ctx, ctx.signed(), dest, value, keep_alive=True)


@call("Balances", "transfer_all")
def transfer_all(ctx: Context, dest: str, keep_alive: bool) -> None:
    source = ctx.signed()
    value = free(ctx.ledger, source) - (EXISTENTIAL_DEPOSIT if keep_alive else 0)
    transfer(ctx, source, dest, max(value, 0), keep_alive=keep_alive)


@call("Balances", "force_transfer")
def force_transfer(ctx: Context, source: str, dest: str, value: int) -> None:
    ctx.ensure_root()
    transfer(ctx, source, dest, value, keep_alive=False)


@call("Balances", "force_set_balance")
def force_set_balance(ctx: Context, who: str, new_free: int) -> None:
    ctx.ensure_root()
    new_free = new_free if new_free >= EXISTENTIAL_DEPOSIT else 0
    _issue(ctx, new_free - free(ctx.ledger, who))
    _set_free(ctx, who, new_free)
    ctx.emit("Balances", "BalanceSet", {"who": who, "free": new_free})


@call("Balances", "burn")
def burn_own(ctx: Context, value: int, keep_alive: bool) -> None:
    who = ctx.signed()
    if keep_alive and free(ctx.ledger, who) - value < EXISTENTIAL_DEPOSIT:
        raise DispatchError(NOT_EXPENDABLE)
    burn(ctx, who, value)
    ctx.emit("Balances", "Burned", {"who": who, "amount": value})


def _issue(ctx: Context, amount: int) -> None:
    ctx.ledger.pallet("Balances").add("TotalIssuance", amount)
    ctx.sub.add("TotalIssuance", amount)


def _debit(ctx: Context, who: str, amount: int) -> None:
    left = free(ctx.ledger, who) - amount
    if left < 0:
        raise DispatchError(FUNDS_UNAVAILABLE)
    if left < EXISTENTIAL_DEPOSIT:
        # What cannot exist as a balance is dust, and dust is destroyed.
        if left:
            ctx.emit("Balances", "DustLost", {"account": who, "amount": left})
            _issue(ctx, -left)
        left = 0
    _set_free(ctx, who, left)


def _credit(ctx: Context, who: str, amount: int) -> None:
    if amount:
        _set_free(ctx, who, free(ctx.ledger, who) + amount)


def _set_free(ctx: Context, who: str, amount: int) -> None:
    record = account(ctx.ledger, who)
    exists = record["providers"] > 0
    if amount and not exists:
        ctx.emit("System", "NewAccount", {"account": who})
        ctx.emit("Balances", "Endowed", {"account": who, "free_balance": amount})
    if exists and not amount:
        ctx.emit("System", "KilledAccount", {"account": who})
    # A reaped account keeps its nonce, so that an old extrinsic of its cannot be replayed.
    data = {**record["data"], "free": amount}
    ctx.ledger.put("System", "Account", (who,), {**record, "providers": int(amount > 0), "data": data})
