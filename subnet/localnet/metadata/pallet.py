"""One pallet's declaration: storage, calls, events, errors and constants, read from text tables.

A table has one line per item, as in a pallet's Rust source but without the noise. Not behaviour: what a call does and
when an event is emitted is the ledger's. The syntax is that of :func:`build`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from subnet.localnet.metadata import values
from subnet.localnet.metadata.grammar import parse_expression
from subnet.localnet.metadata.registry import TypeTable

HASHERS = {"blake2": 2, "twox": 5, "identity": 6}
"""Written in tables for Blake2_128Concat, Twox64Concat and Identity; the metadata's discriminants."""


@dataclass(frozen=True)
class Storage:
    """``keys`` are (type, hasher); ``default`` is what ``default_bytes`` decodes to (None and ``00`` when optional)."""

    name: str
    keys: tuple[tuple[str, str], ...]
    value: str
    optional: bool
    default: Any
    default_bytes: bytes


@dataclass(frozen=True)
class Call:
    """``args`` are (name, type) in wire order; ``index`` is the second byte of an encoded call."""

    name: str
    index: int
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Event:
    """``fields`` are (name or None, type): some pallets name their events' fields, some do not."""

    name: str
    index: int
    fields: tuple[tuple[str | None, str], ...]


@dataclass(frozen=True)
class Constant:
    name: str
    type: str
    value: Any
    value_bytes: bytes


@dataclass(frozen=True)
class Pallet:
    """``crate`` is the Rust path its Call, Event and Error types carry, e.g. ``pallet_balances``."""

    name: str
    index: int
    crate: str
    storage: dict[str, Storage] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)


def build(
    types: TypeTable, name: str, index: int, crate: str,
    storage: str = "", calls: str = "", events: str = "", errors: str = "", constants: str = "",
) -> Pallet:  # fmt: skip
    """A pallet from its tables.

    storage:   ``Name: Key hasher, ... -> Value = literal``; a plain value has no keys; ``Value?`` may be absent
    calls:     ``index name(arg: Type, ...)``
    events:    ``Name(Type, ...)`` or ``Name {field: Type, ...}``, indices in order unless ``= n`` follows
    errors:    names separated by white space, indices in order
    constants: ``Name: Type = literal``

    One item per line; a line with an open bracket goes on in the next. A value without a literal is the type's zero.
    Raises ValueError naming the line that cannot be read.
    """
    return Pallet(
        name, index, crate,
        {item.name: item for item in (_storage(types, line) for line in _lines(storage))},
        {item.name: item for item in map(_call, _lines(calls))},
        _events(events),
        {error: code for code, error in enumerate(errors.split())},
        {item.name: item for item in (_constant(types, line) for line in _lines(constants))},
    )  # fmt: skip


def _lines(table: str) -> list[str]:
    lines: list[str] = []
    depth = 0
    for line in filter(None, map(str.strip, table.splitlines())):
        if depth:
            lines[-1] += " " + line
        else:
            lines.append(line)
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
    return lines


def split_commas(source: str) -> list[str]:
    """Split at the commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(source):
        depth += (char in "([{<") - (char in ")]}>")
        if char == "," and depth == 0:
            parts.append(source[start:position])
            start = position + 1
    return [part.strip() for part in [*parts, source[start:]] if part.strip()]


def named_types(source: str) -> tuple[tuple[str, str], ...]:
    """(name, type) pairs of ``name: Type, ...``; ValueError names a part without a type."""
    pairs = [part.partition(":") for part in split_commas(source)]
    if any(not name.strip() or not kind.strip() for name, _, kind in pairs):
        raise ValueError(f"expected 'name: Type, ...', not {source!r}")
    return tuple((name.strip(), kind.strip()) for name, _, kind in pairs)


def _typed(types: TypeTable, source: str, line: str) -> tuple[str, Any]:
    """(type, literal or None) of ``Type = literal``."""
    type_text, equals, literal = source.partition("=")
    type_text = type_text.strip()
    expression = parse_expression(type_text.rstrip("?"))
    try:
        value = ast.literal_eval(literal.strip()) if equals else values.zero(types, expression)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"cannot read the value in {line!r}: {error}") from error
    return type_text, value


def _storage(types: TypeTable, line: str) -> Storage:
    name, _, rest = line.partition(":")
    keys_text, arrow, value_text = rest.rpartition("->")
    keys: list[tuple[str, str]] = []
    for key in split_commas(keys_text):
        key_type, _, hasher = key.rpartition(" ")
        if hasher not in HASHERS:
            raise ValueError(f"unknown hasher {hasher!r} in {line!r}; use one of {', '.join(HASHERS)}")
        keys.append((key_type.strip(), hasher))
    if bool(keys) != bool(arrow):
        raise ValueError(f"a map has keys before '->', a plain value has none: {line!r}")
    if value_text.rstrip().endswith("?"):
        value = value_text.strip()[:-1].strip()
        parse_expression(value)
        return Storage(name, tuple(keys), value, True, None, b"\x00")
    value, default = _typed(types, value_text, line)
    return Storage(name, tuple(keys), value, False, default, values.encode(types, parse_expression(value), default))


def _call(line: str) -> Call:
    match = re.fullmatch(r"(\d+) (\w+)\((.*)\)", line)
    if match is None:
        raise ValueError(f"a call is 'index name(arg: Type, ...)', not {line!r}")
    return Call(match[2], int(match[1]), named_types(match[3]))


def _events(table: str) -> dict[str, Event]:
    events: dict[str, Event] = {}
    index = 0
    for line in _lines(table):
        match = re.fullmatch(r"(\w+)\s*(?:\((.*)\)|\{(.*)\})?(?:\s*=\s*(\d+))?", line)
        if match is None:
            raise ValueError(f"an event is 'Name(Type, ...)' or 'Name {{field: Type}}', not {line!r}")
        index = int(match[4]) if match[4] else index
        fields: list[tuple[str | None, str]] = [(None, part) for part in split_commas(match[2] or "")]
        fields.extend(named_types(match[3] or ""))
        events[match[1]] = Event(match[1], index, tuple(fields))
        index += 1
    return events


def _constant(types: TypeTable, line: str) -> Constant:
    name, _, rest = line.partition(":")
    type_text, value = _typed(types, rest, line)
    return Constant(name, type_text, value, values.encode(types, parse_expression(type_text), value))
