"""Messages between a tester and a candidate: a length, then JSON that holds plain values and nothing else.

Runs inside the sandbox, without the rest of evalsweep. Neither pickle nor marshal: a hostile candidate writes what the
tester reads, and both can be made to run code or to crash.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalsweep.sandbox.values import Broken, NotPlain
else:
    from values import Broken, NotPlain

BYTES = 16 << 20  # a message
HEADER = 8  # bytes that tell the length of what follows


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
