"""The small language in which the metadata's types are declared, and its parser.

An expression is written as in Rust: ``u64``, ``Vec<(NetUid, AccountId32)>``, ``[u8; 32]``, ``Option<T>``,
``Compact<u64>``. A definition is ``struct {name: T}``, ``struct (T)``, ``enum A | B(T) | C {x: T} = 7``, or an
expression, which is an alias. Not Rust: no lifetimes, bounds or paths inside expressions. Modelled on scale-info's
type definitions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

PRIMITIVES = (
    "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "u256", "i8", "i16", "i32", "i64", "i128", "i256",
)  # fmt: skip
"""In the order of scale-info's primitive discriminants."""

TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>()\[\]{},;:|=])")


@dataclass(frozen=True)
class Named:
    """A primitive, a built-in generic (Vec, Compact) or a declared type, with its arguments."""

    name: str
    args: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return self.name + (f"<{', '.join(map(str, self.args))}>" if self.args else "")


@dataclass(frozen=True)
class Tuple:
    items: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Array:
    item: Expr
    length: int

    def __str__(self) -> str:
        return f"[{self.item}; {self.length}]"


Expr: TypeAlias = "Named | Tuple | Array"


@dataclass(frozen=True)
class Field:
    name: str | None
    type: Expr


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Variant:
    name: str
    index: int
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Enum:
    variants: tuple[Variant, ...]


Definition: TypeAlias = "Struct | Enum | Named | Tuple | Array"


class Parser:
    """Recursive descent over one declaration; raises ValueError naming the text and the place."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: list[str] = []
        position = 0
        while position < len(source.rstrip()):
            match = TOKEN.match(source, position)
            if match is None:
                raise ValueError(f"cannot read {source[position:]!r} in type {source!r}")
            self.tokens.append(match.group(1))
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            found = token or "the end"
            raise ValueError(f"expected {expected or 'more'!r} but found {found!r} in type {self.source!r}")
        self.at += 1
        return token

    def identifier(self) -> str:
        if not self.peek().isidentifier():
            raise ValueError(f"expected a name but found {self.peek() or 'the end'!r} in type {self.source!r}")
        return self.take()

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def done(self) -> None:
        if self.peek():
            raise ValueError(f"unexpected {self.peek()!r} in type {self.source!r}")

    def expressions(self, end: str) -> tuple[Expr, ...]:
        items: list[Expr] = []
        while not self.accept(end):
            items.append(self.expression())
            if not self.accept(","):
                self.take(end)
                break
        return tuple(items)

    def expression(self) -> Expr:
        if self.accept("("):
            return Tuple(self.expressions(")"))
        if self.accept("["):
            item = self.expression()
            self.take(";")
            length = int(self.take())
            self.take("]")
            return Array(item, length)
        name = self.identifier()
        return Named(name, self.expressions(">") if self.accept("<") else ())

    def fields(self) -> tuple[Field, ...]:
        if self.accept("("):
            return tuple(Field(None, item) for item in self.expressions(")"))
        named: list[Field] = []
        if self.accept("{"):
            while not self.accept("}"):
                name = self.identifier()
                self.take(":")
                named.append(Field(name, self.expression()))
                if not self.accept(","):
                    self.take("}")
                    break
        return tuple(named)

    def variants(self) -> tuple[Variant, ...]:
        found: list[Variant] = []
        while self.peek():
            name, fields = self.identifier(), self.fields()
            index = int(self.take()) if self.accept("=") else (found[-1].index + 1 if found else 0)
            found.append(Variant(name, index, fields))
            if not self.accept("|"):
                break
        return tuple(found)

    def definition(self) -> Definition:
        if self.accept("struct"):
            return Struct(self.fields())
        if self.accept("enum"):
            return Enum(self.variants())
        return self.expression()


def parse_expression(source: str) -> Expr:
    parser = Parser(source)
    expression = parser.expression()
    parser.done()
    return expression


def parse_definition(source: str) -> Definition:
    parser = Parser(source)
    definition = parser.definition()
    parser.done()
    return definition


def substitute(expression: Expr, binding: dict[str, Expr]) -> Expr:
    """The expression with generic parameters replaced by their arguments."""
    if isinstance(expression, Tuple):
        return Tuple(tuple(substitute(item, binding) for item in expression.items))
    if isinstance(expression, Array):
        return Array(substitute(expression.item, binding), expression.length)
    if not expression.args and expression.name in binding:
        return binding[expression.name]
    return Named(expression.name, tuple(substitute(arg, binding) for arg in expression.args))


def instantiate(definition: Definition, binding: dict[str, Expr]) -> Definition:
    """The definition with generic parameters replaced by their arguments."""
    if not binding:
        return definition
    if isinstance(definition, Struct):
        return Struct(tuple(Field(f.name, substitute(f.type, binding)) for f in definition.fields))
    if isinstance(definition, Enum):
        return Enum(
            tuple(
                Variant(v.name, v.index, tuple(Field(f.name, substitute(f.type, binding)) for f in v.fields))
                for v in definition.variants
            )
        )
    return substitute(definition, binding)
