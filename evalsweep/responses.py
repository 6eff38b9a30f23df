"""Answers on disk as they arrive: a file for each process, a line for each answer, checksummed.

    <sweep>/responses/<host>-<process>-<random>.jsonl    checksum (CRC-32), key, the answer in JSON

What a crash or a full disk has torn is passed over: that answer counts as not given. A file has one writer, so that
processes that share a folder need no lock.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import time
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

SYNC = 1.0  # seconds between two times that what was written is forced to the disk


class Responses:
    """The answers that are kept, by their keys: in a folder, or in memory alone where there is none.

    Args:
        folder: where this process writes, and where others may; made with the first answer.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.torn = 0  # lines that were passed over
        self._memory: dict[str, str] = {}
        self._places: dict[str, tuple[Path, int, int]] = {}  # file, where the JSON begins, its length
        self._read_to: dict[Path, int] = {}
        self._file: BinaryIO | None = None
        self._own: Path | None = None
        self._whole = True  # whether the last write went through
        self._synced = 0.0
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self._places or key in self._memory

    def __len__(self) -> int:
        return len(self._places) + len(self._memory)

    def get(self, key: str) -> Any:
        """Give an answer. Errors: KeyError for one that is not kept; OSError."""
        if self.folder is None:
            return json.loads(self._memory[key])
        path, start, length = self._places[key]
        with path.open("rb") as f:
            f.seek(start)
            return json.loads(f.read(length))

    def put(self, key: str, answer: Mapping[str, Any]) -> None:
        """Keep an answer. Errors: OSError, such as that of a full disk; what was kept before stays."""
        text = json.dumps(answer, separators=(",", ":"))  # ASCII: half a surrogate pair stays an escape
        if self.folder is None:
            self._memory[key] = text
            return
        body = f"{key} {text}"
        line = f"{zlib.crc32(body.encode()):08x} {body}\n".encode()
        file = self._writable()
        before = b"" if self._whole else b"\n"  # closes the line that an earlier failure tore
        self._whole = False
        start = file.seek(0, os.SEEK_END) + len(before)
        _write_all(file, before + line)
        self._whole = True
        assert self._own is not None  # opened by `_writable`
        self._places[key] = (self._own, start + len(line) - 1 - len(text), len(text))
        self._read_to[self._own] = start + len(line)
        if time.monotonic() - self._synced >= SYNC:
            self.sync()

    def sync(self) -> None:
        """Force what was written to the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Force what was written to the disk, and write no more; what is kept can still be read."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None

    def refresh(self) -> None:
        """Take in what other processes have written since."""
        if self.folder is not None and self.folder.is_dir():
            for path in sorted(self.folder.glob("*.jsonl")):
                if path != self._own:
                    self._read(path)

    def _read(self, path: Path) -> None:
        with path.open("rb") as f:
            place = f.seek(self._read_to.get(path, 0))
            for line in f:
                if not line.endswith(b"\n"):
                    break  # torn, or still being written
                checksum, _, body = line[:-1].partition(b" ")
                key, _, text = body.partition(b" ")
                if checksum == f"{zlib.crc32(body):08x}".encode():
                    self._places.setdefault(key.decode(), (path, place + len(line) - 1 - len(text), len(text)))
                else:
                    self.torn += 1
                place += len(line)
            self._read_to[path] = place

    def _writable(self) -> BinaryIO:
        if self._file is None:
            assert self.folder is not None  # only a folder has files
            self.folder.mkdir(parents=True, exist_ok=True)
            self._own = self.folder / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
            self._file = self._own.open("xb", buffering=0)
        return self._file


@dataclass(frozen=True)
class Earlier:
    """The answers of an earlier sweep, and what a record calls it."""

    name: str
    responses: Responses


@functools.cache
def shared(folder: Path) -> Responses:
    """Give the answers of a folder; the jobs of a process share them."""
    return Responses(folder)


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all bytes: without a buffer, a write may take only some of them."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
