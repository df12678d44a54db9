"""Runtime APIs: what `state_call` answers, by name. The answers are in this package's modules, one per concern.

Pure functions of one block's state. Inputs and outputs are typed by the metadata's API table; a name that is not
registered here is reported as not exported, which is how a client learns what a runtime lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subnet.localnet.ledger import Ledger, Pallet
from subnet.localnet.runtime import ChainRuntime


class NotExported(LookupError):
    """The runtime has no such API method."""


class BadInput(ValueError):
    """The argument bytes do not decode."""


@dataclass(frozen=True)
class Call:
    """One call: the state it reads, and the block that state is of."""

    ledger: Ledger
    runtime: ChainRuntime
    block: int

    @property
    def sub(self) -> Pallet:
        return self.ledger.pallet("SubtensorModule")


_TYPED: dict[str, Callable[..., Any]] = {}
_RAW: dict[str, Callable[[Call, bytes], bytes]] = {}


def api(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers `function(call, *inputs) -> output`, e.g. for "SubnetInfoRuntimeApi_get_metagraph"."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _TYPED[name] = function
        return function

    return register


def raw_api(name: str) -> Callable[[Callable[[Call, bytes], bytes]], Callable[[Call, bytes], bytes]]:
    """Registers a function from argument bytes to answer bytes, for the few whose SCALE is not in the metadata."""

    def register(function: Callable[[Call, bytes], bytes]) -> Callable[[Call, bytes], bytes]:
        _RAW[name] = function
        return function

    return register


def answer(call: Call, name: str, data: bytes) -> bytes:
    """SCALE bytes of the answer.

    Raises:
        NotExported: this runtime has no such method.
        BadInput: `data` is not what the method takes.
    """
    if name in _RAW:
        return _RAW[name](call, data)
    function = _TYPED.get(name)
    if function is None:
        raise NotExported(name)
    declared = call.runtime.apis[name]
    types = [type_string for _, type_string in declared["inputs"]]
    try:
        values = call.runtime.codec.decode(f"({', '.join(types)})", data) if types else ()
    except ValueError as error:
        raise BadInput(str(error)) from error
    # A tuple of one decodes to its only member.
    values = values if len(types) != 1 or isinstance(values, tuple) else (values,)
    return bytes(call.runtime.codec.encode(declared["output"], function(call, *values)))


from subnet.localnet.runtime_api import accounts, core, metagraph, subnets  # noqa: E402, F401 - they register themselves
