"""The portable type registry: numbers declared types as they are first used and encodes them for metadata.

A type is registered once per spelling, its id fixed before its fields are visited, so that recursive types (a call
that holds calls) close. Not a resolver of paths: short names are unique. Layout: scale-info's PortableRegistry, as in
V14 and V15.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from subnet.localnet.metadata import scale
from subnet.localnet.metadata.grammar import (
    PRIMITIVES,
    Array,
    Definition,
    Enum,
    Expr,
    Field,
    Named,
    Struct,
    Tuple,
    Variant,
    instantiate,
    parse_definition,
    parse_expression,
)

BUILT_IN = (*PRIMITIVES, "Vec", "Compact")
"""Names that need no declaration."""


class TypeTable:
    """Declared types by short name; resolves aliases and generic arguments.

    ``declare`` takes ``{"crate::module::Name<T>": definition}``; expressions use the last path segment, or the name
    after `` as `` where two types share it.
    """

    def __init__(self) -> None:
        self._declared: dict[str, tuple[tuple[str, ...], tuple[str, ...], Definition]] = {}

    def declare(self, definitions: dict[str, str]) -> None:
        """Add definitions; ValueError for a name that is taken or a text that does not parse."""
        for head, source in definitions.items():
            full, _, short = head.partition(" as ")
            name, _, generics = full.partition("<")
            path = tuple(name.split("::"))
            short = short or path[-1]
            if short in self._declared or short in BUILT_IN:
                raise ValueError(f"type {short!r} is declared twice; name one of them by 'path as Short'")
            parameters = tuple(p.strip() for p in generics.rstrip(">").split(",")) if generics else ()
            self._declared[short] = (path, parameters, parse_definition(source))

    def path(self, name: str) -> tuple[str, ...]:
        return self._declared[name][0]

    def parameters(self, name: str) -> tuple[str, ...]:
        return self._declared[name][1]

    def lookup(self, expression: Named) -> Definition:
        """The definition behind a name with its arguments put in; KeyError names an undeclared type."""
        if expression.name not in self._declared:
            raise KeyError(f"type {expression.name!r} is used but not declared")
        _, parameters, definition = self._declared[expression.name]
        if len(parameters) != len(expression.args):
            raise KeyError(f"type {expression.name!r} takes {len(parameters)} arguments, not those of {expression}")
        return instantiate(definition, dict(zip(parameters, expression.args, strict=True)))

    def resolve(self, expression: Expr) -> Expr:
        """The expression with aliases followed at its outermost level."""
        while (
            isinstance(expression, Named)
            and expression.name in self._declared
            and not isinstance(definition := self.lookup(expression), (Struct, Enum))
        ):
            expression = definition
        return expression


@dataclass
class Registry:
    """Assigns ids in order of first use. ``encode`` gives the PortableRegistry's bytes."""

    types: TypeTable
    _ids: dict[str, int] = field(default_factory=dict)
    """By canonical spelling."""
    _seen: dict[Expr | str, int] = field(default_factory=dict)
    """By the expression as it was written: most types are used many times."""
    _encoded: list[bytes] = field(default_factory=list)

    def id_of(self, expression: Expr | str) -> int:
        """The id of a type, registering it and everything it holds."""
        if expression in self._seen:
            return self._seen[expression]
        resolved = self.types.resolve(parse_expression(expression) if isinstance(expression, str) else expression)
        key = str(self._canonical(resolved))
        if key not in self._ids:
            self._ids[key] = len(self._encoded)
            self._encoded.append(b"")
            self._encoded[self._ids[key]] = self._type(resolved)
        self._seen[expression] = self._ids[key]
        return self._ids[key]

    def encode(self) -> bytes:
        return scale.vec(enumerate(self._encoded), lambda item: scale.compact(item[0]) + item[1])

    def _canonical(self, expression: Expr) -> Expr:
        resolved = self.types.resolve(expression)
        if isinstance(resolved, Tuple):
            return Tuple(tuple(map(self._canonical, resolved.items)))
        if isinstance(resolved, Array):
            return Array(self._canonical(resolved.item), resolved.length)
        return Named(resolved.name, tuple(map(self._canonical, resolved.args)))

    def _type(self, expression: Expr) -> bytes:
        if isinstance(expression, Named) and expression.name not in BUILT_IN:
            definition = self.types.lookup(expression)
            path = self.types.path(expression.name)
            parameters = zip(self.types.parameters(expression.name), expression.args, strict=True)
            encoded = scale.vec(path, scale.text) + scale.vec(
                parameters, lambda p: scale.text(p[0]) + scale.option(scale.compact(self.id_of(p[1])))
            )
            return encoded + self._definition(definition) + scale.vec((), scale.text)
        return scale.vec((), scale.text) * 2 + self._plain(expression) + scale.vec((), scale.text)

    def _plain(self, expression: Expr) -> bytes:
        if isinstance(expression, Tuple):
            return scale.u8(4) + scale.vec(expression.items, lambda item: scale.compact(self.id_of(item)))
        if isinstance(expression, Array):
            return scale.u8(3) + scale.u32(expression.length) + scale.compact(self.id_of(expression.item))
        if expression.name in PRIMITIVES:
            return scale.u8(5) + scale.u8(PRIMITIVES.index(expression.name))
        (item,) = expression.args
        return scale.u8(6 if expression.name == "Compact" else 2) + scale.compact(self.id_of(item))

    def _definition(self, definition: Definition) -> bytes:
        if isinstance(definition, Struct):
            return scale.u8(0) + scale.vec(definition.fields, self._field)
        assert isinstance(definition, Enum)
        return scale.u8(1) + scale.vec(definition.variants, self._variant)

    def _variant(self, variant: Variant) -> bytes:
        fields = scale.vec(variant.fields, self._field)
        return scale.text(variant.name) + fields + scale.u8(variant.index) + scale.vec((), scale.text)

    def _field(self, item: Field) -> bytes:
        name = None if item.name is None else scale.text(item.name)
        encoded = scale.option(name) + scale.compact(self.id_of(item.type)) + scale.option(scale.text(str(item.type)))
        return encoded + scale.vec((), scale.text)
