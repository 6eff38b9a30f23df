"""Plain values as JSON and back: what a candidate returns is made anew in the tester, as `==` of Python sees it.

Runs inside the sandbox, without the rest of evalsweep. A decoded value is of a builtin type, of a few types of the
standard library and numpy, or a `Record`, which is equal to records alone. None of its methods is the candidate's.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

DEPTH = 100  # containers within containers
VALUES = 1_000_000  # values in a message; a list that holds itself twice grows as 2 ** DEPTH
ITERATOR = 100_000  # values taken from an iterator
NUMPY = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)

_NONE: dict[object, object] = {}
_COMMON = frozenset((list, tuple, dict, set))
_KEYS, _VALUES, _ITEMS = type(_NONE.keys()), type(_NONE.values()), type(_NONE.items())


class NotPlain(Exception):
    """A value that cannot be sent; its text continues "returned ...,"."""


class Broken(Exception):
    """The other side ended, or sent what is no message."""


class Record:
    """A candidate's dataclass or member of an Enum: equal to another of the same class and the same fields.

    Fields are attributes. The class has slots, so that no field can take the place of what they hold.
    """

    __slots__ = ("__dict__", "_fields", "_kind", "_repr", "_text")

    def __init__(self, kind: str, text: str, representation: str, fields: dict[str, Any]) -> None:
        if not all(isinstance(word, str) for word in (kind, text, representation, *fields)):
            raise TypeError
        self._kind, self._text, self._repr, self._fields = kind, text, representation, fields
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return (self._kind, self._fields) == (other._kind, other._fields)

    def __hash__(self) -> int:
        return hash(self._kind)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._repr


def encode(value: object) -> Any:
    """A value as JSON; a subclass (Counter, a named tuple, IntEnum) becomes its base. Errors: NotPlain."""
    left = VALUES

    def walk(value: object, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise NotPlain("a value too large to compare")
        if depth > DEPTH:
            raise NotPlain("a value nested too deep to compare")
        scalar = _scalar(value)
        if scalar is not NotImplemented:
            return scalar
        tag, parts = _parts(value)
        return [tag, *[walk(part, depth + 1) for part in parts]]

    return walk(value, 0)


def _scalar(value: object) -> Any:
    """JSON for what holds no other values, NotImplemented for the rest."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) in _COMMON:
        return NotImplemented  # at once: a message may hold a million of them
    if value is math.nan:
        return ["nan"]  # `[math.nan] == [math.nan]` is true, because both are the same object
    if isinstance(value, _class("numpy", "generic")) and not isinstance(value, str | bytes):
        return _numpy_scalar(value)  # before float, whose subclass numpy's is
    # the base's own methods, so that a subclass gives its value and not what it overrides
    if isinstance(value, int):
        plain = int.__index__(value)
        return plain if plain.bit_length() < 10_000 else ["int", hex(plain)]
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return ["bytes" if isinstance(value, bytes) else "bytearray", bytes(value).hex()]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    if isinstance(value, _class("decimal", "Decimal")):
        return ["decimal", str(value)]
    return NotImplemented


def _numpy_scalar(value: Any) -> Any:
    name = value.dtype.name
    if name not in NUMPY:
        raise NotPlain(f"a numpy {name}, which cannot be compared")
    return ["numpy", name, encode(value.item())]


def _parts(value: Any) -> tuple[str, Iterator[object]]:
    """The kind of a value that holds others, and what it holds."""
    kind: Any
    for kind in (list, tuple, set, frozenset, deque):
        if isinstance(value, kind):
            return kind.__name__, kind.__iter__(value)
    if isinstance(value, dict):
        return "dict", chain.from_iterable(dict.items(value))
    if isinstance(value, range):
        return "range", iter((value.start, value.stop, value.step))
    if isinstance(value, _KEYS | _VALUES):
        return ("keys" if isinstance(value, _KEYS) else "values"), iter(value)
    if isinstance(value, _ITEMS):
        return "items", chain.from_iterable(value)
    if isinstance(value, _class("fractions", "Fraction")):
        return "fraction", iter((value.numerator, value.denominator))
    if type(value) is _class("numpy", "ndarray"):
        return _array_parts(value)
    for name in ("datetime", "date", "time", "timedelta"):  # a datetime is a date too
        if isinstance(value, _class("datetime", name)):
            return name, _time_parts(name, value)
    if isinstance(value, Iterator):
        held = list(islice(value, ITERATOR + 1))
        if len(held) > ITERATOR:
            raise NotPlain(f"an iterator of more than {ITERATOR} values")
        return "iterator", iter(held)
    return "record", _record_parts(value)


def _class(module: str, name: str) -> Any:
    """A class of a module, or nothing that any value is an instance of where the program has not imported it."""
    return getattr(sys.modules.get(module), name, ())


def _array_parts(array: Any) -> tuple[str, Iterator[object]]:
    name = {"U": "str", "O": "object"}.get(array.dtype.kind, array.dtype.name)
    if name not in NUMPY and name not in ("str", "object"):
        raise NotPlain(f"a numpy array of {name}, which cannot be compared")
    return "array", iter((name, array.shape, array.ravel().tolist()))


def _time_parts(name: str, value: Any) -> Iterator[object]:
    if name == "timedelta":
        return iter((value.days, value.seconds, value.microseconds))
    date = (value.year, value.month, value.day) if name != "time" else ()
    if name == "date":
        return iter(date)
    clock = (value.hour, value.minute, value.second, value.microsecond)
    return iter((*date, *clock, value.utcoffset()))


def _record_parts(value: Any) -> Iterator[object]:
    kind = type(value).__name__
    if isinstance(value, _class("enum", "Enum")):
        fields = {"name": value.name, "value": value.value}
    elif hasattr(type(value), "__dataclass_fields__"):
        fields = {name: getattr(value, name) for name in type(value).__dataclass_fields__ if hasattr(value, name)}
    else:
        raise NotPlain(f"a {kind}, which cannot be compared")
    return chain((kind, str(value), repr(value)), chain.from_iterable(fields.items()))


def decode(data: Any) -> Any:
    """The value that `encode` was given, of types that are named here. Errors: Broken."""
    try:
        return _decode(data, 0)
    except (TypeError, ValueError, ArithmeticError, LookupError, ImportError):
        raise Broken("a value of a wrong kind") from None


def _decode(data: Any, depth: int) -> Any:
    if depth > DEPTH + 2:  # an array holds a list of its values
        raise ValueError
    if isinstance(data, dict):
        raise TypeError
    if not isinstance(data, list):
        return data
    return _KINDS[data[0]]([_decode(part, depth + 1) for part in data[1:]])


def _pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _fraction(parts: list[Any]) -> Any:
    from fractions import Fraction  # imported where it is used: a start costs less

    return Fraction(*map(int, parts))


def _decimal(parts: list[Any]) -> Any:
    from decimal import Decimal

    return Decimal(parts[0])


def _time(name: str) -> Callable[[list[Any]], Any]:
    def make(parts: list[Any]) -> Any:
        import datetime

        if name == "timedelta":
            return datetime.timedelta(*parts)
        if name != "date":
            *parts, offset = parts
            parts.append(None if offset is None else datetime.timezone(offset))
        return getattr(datetime, name)(*parts)

    return make


def _numpy(parts: list[Any]) -> Any:
    name, value = parts
    if name not in NUMPY:
        raise TypeError
    import numpy

    return numpy.dtype(name).type(value)


def _array(parts: list[Any]) -> Any:
    name, shape, values = parts
    import numpy

    if name == "object":
        array = numpy.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            array[i] = value
        return array.reshape(shape)
    if name not in NUMPY and name != "str":
        raise TypeError
    return numpy.array(values, dtype=name).reshape(shape)


_KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "dict": _pairs,
    "range": lambda parts: range(*parts),
    "keys": lambda parts: dict.fromkeys(parts).keys(),
    "values": lambda parts: dict(enumerate(parts)).values(),
    "items": lambda parts: _pairs(parts).items(),
    "iterator": iter,
    "nan": lambda parts: math.nan,
    "int": lambda parts: int(parts[0], 16),
    "bytes": lambda parts: bytes.fromhex(parts[0]),
    "bytearray": lambda parts: bytearray.fromhex(parts[0]),
    "complex": lambda parts: complex(*parts),
    "fraction": _fraction,
    "decimal": _decimal,
    "datetime": _time("datetime"),
    "date": _time("date"),
    "time": _time("time"),
    "timedelta": _time("timedelta"),
    "numpy": _numpy,
    "array": _array,
    "record": lambda parts: Record(parts[0], parts[1], parts[2], _pairs(parts[3:])),
}
