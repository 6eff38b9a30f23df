"""Messages between a tester and a candidate: a length, then JSON that holds plain values and nothing else.

Runs inside the sandbox, without the rest of evalsweep. Neither pickle nor marshal: a hostile candidate writes what the
tester reads, and both can be made to run code or to crash.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

DEPTH = 100  # containers within containers
VALUES = 1_000_000  # values in a message; a list that holds itself twice grows as 2 ** DEPTH
ITERATOR = 100_000  # values taken from an iterator
BYTES = 16 << 20  # a message
HEADER = 8  # bytes that tell the length of what follows

_NONE: dict[object, object] = {}
_KEYS, _VALUES, _ITEMS = type(_NONE.keys()), type(_NONE.values()), type(_NONE.items())


class NotPlain(Exception):
    """A value that cannot be sent; its text continues "returned ...,"."""


class Broken(Exception):
    """The other side ended, or sent what is no message."""


def import_only_from(packages: str) -> None:
    """Import installed packages from that folder alone; without a sandbox this Python's own are on the path too."""
    sys.path[:] = [p for p in sys.path if not p.endswith(("site-packages", "dist-packages"))] + [packages]


def discard_output() -> None:
    """Send what is printed to nowhere: the host reads only why a sandbox did not start."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


def send(fd: int, message: dict[str, Any]) -> None:
    """Errors: NotPlain for a message that is too long, OSError where nobody reads."""
    data = json.dumps(message).encode()
    if len(data) > BYTES:
        raise NotPlain("a value too large to compare")
    data = len(data).to_bytes(HEADER, "big") + data
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int) -> dict[str, Any]:
    """The next message. Errors: Broken."""
    size = int.from_bytes(_read(fd, HEADER), "big")
    if size > BYTES:
        raise Broken("a message of a wrong length")
    try:
        message = json.loads(_read(fd, size))
    except (ValueError, RecursionError):
        raise Broken("a message that is no JSON") from None
    if not isinstance(message, dict):
        raise Broken("a message of a wrong kind")
    return message


def _read(fd: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(fd, min(size, 1 << 16))
        if not part:
            raise Broken("")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


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
        return [tag, *(walk(part, depth + 1) for part in parts)]

    return walk(value, 0)


def _scalar(value: object) -> Any:
    """JSON for what holds no other values, NotImplemented for the rest."""
    if value is None or isinstance(value, bool):
        return value
    # the base's own methods, so that a subclass gives its value and not what it overrides
    if isinstance(value, int):
        plain = int.__index__(value)
        return plain if plain.bit_length() < 10_000 else ["int", hex(plain)]
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return ["bytes", bytes.hex(value)]
    if isinstance(value, complex):
        return ["complex", value.real, value.imag]
    return NotImplemented


def _parts(value: object) -> tuple[str, Iterator[object]]:
    """The kind of a container, and what it holds."""
    kind: Any
    for kind in (list, tuple, set, frozenset):
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
    if isinstance(value, Iterator):
        held = list(islice(value, ITERATOR + 1))
        if len(held) > ITERATOR:
            raise NotPlain(f"an iterator of more than {ITERATOR} values")
        return "iterator", iter(held)
    raise NotPlain(f"a {type(value).__name__}, which cannot be compared")


def decode(data: Any) -> Any:
    """The value that `encode` was given, of builtin types exactly. Errors: Broken."""
    try:
        return _decode(data, 0)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError):
        raise Broken("a value of a wrong kind") from None


def _decode(data: Any, depth: int) -> Any:
    if depth > DEPTH + 1:
        raise ValueError
    if isinstance(data, dict):
        raise TypeError
    if not isinstance(data, list):
        return data
    return _KINDS[data[0]]([_decode(part, depth + 1) for part in data[1:]])


def _pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


_KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": _pairs,
    "range": lambda parts: range(*parts),
    "keys": lambda parts: dict.fromkeys(parts).keys(),
    "values": lambda parts: dict(enumerate(parts)).values(),
    "items": lambda parts: _pairs(parts).items(),
    "iterator": iter,
    "int": lambda parts: int(parts[0], 16),
    "bytes": lambda parts: bytes.fromhex(parts[0]),
    "complex": lambda parts: complex(*parts),
}
