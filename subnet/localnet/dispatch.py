"""Calls and their meaning: the registry, the context a call runs in, and its errors.

The calls themselves are in pallets/, one plain function each: `(ctx, **arguments as the metadata names them)`,
raising DispatchError to refuse. A refused call leaves no trace but its error, as in FRAME's storage layers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from subnet.localnet.ledger import Ledger, Pallet
from subnet.localnet.metadata import PALLETS
from subnet.localnet.state import State

logger = logging.getLogger(__name__)

ROOT = "root"
"""The origin of sudo calls; every other origin is the signer's SS58 address."""

MAX_DEPTH = 32
"""Calls nested in calls."""


class DispatchError(Exception):
    """A refusal; `value` is the SCALE DispatchError."""

    def __init__(self, value: Any) -> None:
        super().__init__(str(value))
        self.value = value


def refusal(pallet: str, name: str) -> DispatchError:
    """A pallet's own error; the SDK raises it by this name."""
    declared = PALLETS[pallet]
    return DispatchError({"Module": {"index": declared.index, "error": f"0x{declared.errors[name]:02x}000000"}})


BAD_ORIGIN = "BadOrigin"
CANNOT_LOOKUP = "CannotLookup"
OTHER = "Other"
OVERFLOW = {"Arithmetic": "Overflow"}
"""A result does not fit its type."""


@dataclass(frozen=True)
class Rules:
    """What the node's operator chooses about the chain."""

    tempo: int = 360
    """Blocks between epochs of newly registered subnets."""
    weights_rate_limit: int = 100
    """Blocks between two settings of weights by one hotkey, on newly registered subnets."""


@dataclass
class Context:
    """One call's, or one block's, access to the chain."""

    ledger: Ledger
    state: State
    rules: Rules
    block: int
    origin: str = ROOT
    depth: int = 0
    events: list[bytes] = field(default_factory=list)
    """SCALE RuntimeEvents."""

    @property
    def sub(self) -> Pallet:
        return self.ledger.pallet("SubtensorModule")

    def emit(self, pallet: str, event: str, fields: Any = None) -> None:
        """Deposits an event; `fields` is a dict for named fields, a list for several unnamed, or the one value."""
        value = {pallet: event if fields is None else {event: fields}}
        self.events.append(self.ledger.codec.event(value))

    def ensure(self, condition: object, error: str, pallet: str = "SubtensorModule") -> None:
        if not condition:
            raise refusal(pallet, error)

    def signed(self) -> str:
        """The signer; BadOrigin for root."""
        if self.origin == ROOT:
            raise DispatchError(BAD_ORIGIN)
        return self.origin

    def ensure_root(self) -> None:
        if self.origin != ROOT:
            raise DispatchError(BAD_ORIGIN)

    def nested(self, origin: str) -> Context:
        """A context for a call inside this one, with the same events."""
        return replace(self, origin=origin, depth=self.depth + 1)


Handler = Callable[..., None]

CALLS: dict[tuple[str, str], Handler] = {}

FREE: set[tuple[str, str]] = set()
"""Calls that pay no fee (`Pays::No`)."""


def call(pallet: str, name: str, *, free: bool = False) -> Callable[[Handler], Handler]:
    """Registers a function as the meaning of a call; the name must be in the metadata."""
    assert name in PALLETS[pallet].calls, f"the metadata has no call {pallet}.{name}"

    def register(handler: Handler) -> Handler:
        CALLS[pallet, name] = handler
        if free:
            FREE.add((pallet, name))
        return handler

    return register


def dispatch(ctx: Context, decoded: dict[str, Any]) -> None:
    """Runs one decoded call; what it wrote and announced is undone if it is refused.

    Raises:
        DispatchError: the call was refused, or this chain does not implement it (System.CallFiltered).
    """
    handler = CALLS.get((decoded["call_module"], decoded["call_function"]))
    if handler is None or ctx.depth > MAX_DEPTH:
        raise refusal("System", "CallFiltered")
    arguments = {argument["name"]: _argument(argument) for argument in decoded["call_args"]}
    announced = len(ctx.events)
    try:
        with ctx.state.transaction():
            handler(ctx, **arguments)
    except DispatchError:
        del ctx.events[announced:]
        raise
    except Exception as error:
        # A fault of this program's must cost the caller its call, not everybody the chain; it is logged.
        del ctx.events[announced:]
        logger.exception("%s.%s failed", decoded["call_module"], decoded["call_function"])
        raise DispatchError(OVERFLOW if isinstance(error, ValueError | OverflowError) else OTHER) from error


def _argument(argument: dict[str, Any]) -> Any:
    value = argument["value"]
    if argument["type"] == "MultiAddress" and not isinstance(value, str):
        raise DispatchError(CANNOT_LOOKUP)
    return value


def is_free(decoded: dict[str, Any]) -> bool:
    """Whether a call pays no fee; a batch is free when all its calls are."""
    name = decoded["call_module"], decoded["call_function"]
    if name[0] == "Utility":
        inner = [argument["value"] for argument in decoded["call_args"] if argument["name"] == "calls"]
        return bool(inner and inner[0]) and all(is_free(item) for item in inner[0])
    return name in FREE
