"""Strict frozen dataclasses: every field type- and range-checked on construction, with one-line errors.

Not a serialisation library: it knows the few types a configuration needs (int, float, bool, str, float
pairs, Literal) and refuses everything else. Ranges are written in the annotation: `Annotated[float, Range(0, 1)]`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from subnet.errors import ConfigError

T = TypeVar("T", bound="Strict")

MAX_STRING = 1024
_HINTS: dict[type, dict[str, Any]] = {}  # get_type_hints costs milliseconds per class


@dataclass(frozen=True)
class Range:
    """Allowed interval of a number, both ends included unless `open_low` / `open_high`."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        return f"in {'(' if self.open_low else '['}{self.low}, {self.high}{')' if self.open_high else ']'}"


@dataclass(frozen=True)
class Strict:
    """Base of checked dataclasses. `section` is the prefix in messages; subclasses add rules across fields in `_check`.

    Raises `ConfigError` on construction (also through `dataclasses.replace`) when a field has the
    wrong type, is out of range or contradicts another one. An int is accepted where a float is wanted.
    """

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            value = _checked(getattr(self, name), hint, _path(self.section, name))
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        """Rules between fields; raise ConfigError."""

    def _fail(self, name: str, why: str) -> ConfigError:
        return ConfigError(f"{_path(self.section, name)} {why}")


def parse(cls: type[T], table: object) -> T:
    """Build `cls` from a parsed TOML/msgpack table, nested sections included.

    Raises ConfigError for anything else than a table, an unknown key, a missing key, or a bad value.
    """
    section = cls.section
    if not isinstance(table, Mapping):
        raise ConfigError(f"{section or 'the run'} must be a table, got {show(table)}")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in table:
        if not isinstance(key, str) or key not in fields:
            raise ConfigError(_unknown(section, key, list(fields)))
    hints = _hints(cls)
    values: dict[str, Any] = {}
    for name, f in fields.items():
        if name in table:
            hint = hints[name]
            nested = isinstance(hint, type) and issubclass(hint, Strict)
            values[name] = parse(hint, table[name]) if nested else table[name]
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{_path(section, name)} is missing")
    return cls(**values)


def show(value: object) -> str:
    """A short one-line rendering of an untrusted value; never raises (repr of a huge int does)."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown(section: str, key: object, known: list[str]) -> str:
    where = f"[{section}] has" if section else "has"
    close = difflib.get_close_matches(key[:64], known, n=1) if isinstance(key, str) else []
    hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
    return f"{where} an unknown key {show(key)}; {hint}"


def _path(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = {
            k: v for k, v in get_type_hints(cls, include_extras=True).items() if get_origin(v) is not ClassVar
        }
    return _HINTS[cls]


def _checked(value: Any, hint: Any, path: str) -> Any:
    bounds = None
    if get_origin(hint) is Annotated:
        hint, bounds = get_args(hint)
    if get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise ConfigError(f"{path} must be one of {', '.join(map(repr, get_args(hint)))}, got {show(value)}")
        return value
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise ConfigError(f"{path} must be a list of {len(kinds)} numbers, got {show(value)}")
        kinds = tuple(Annotated[kind, bounds] if bounds else kind for kind in kinds)
        return tuple(_checked(v, kind, path) for v, kind in zip(value, kinds, strict=True))
    value = _scalar(value, hint, path)
    if bounds is not None and value not in bounds:
        raise ConfigError(f"{path} must be {bounds}, got {show(value)}")
    return value


def _scalar(value: Any, hint: type, path: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float:
        if not number:
            raise ConfigError(f"{path} must be a number, got {show(value)}")
        if (isinstance(value, int) and value.bit_length() > 512) or not math.isfinite(value):
            raise ConfigError(f"{path} must be a finite number, got {show(value)}")
        return float(value) + 0.0  # -0.0 becomes 0.0, so that equal numbers have equal hashes
    if hint is int:
        if not number or isinstance(value, float):
            raise ConfigError(f"{path} must be a whole number, got {show(value)}")
        return int(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{path} must be true or false, got {show(value)}")
        return value
    if hint is str:
        if not isinstance(value, str):
            raise ConfigError(f"{path} must be a string, got {show(value)}")
        if len(value) > MAX_STRING or not value.isprintable():
            raise ConfigError(f"{path} must be printable and of at most {MAX_STRING} characters, got {show(value)}")
        return value
    if not isinstance(value, hint):
        raise ConfigError(f"{path} must be a {hint.__name__}, got {show(value)}")
    return value
