"""One running sandbox: starts, is watched from outside, and ends with everything in it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from evalsweep.sandbox.usage import Usage
from evalsweep.sandbox.view import Limits, View

KEEP = 4096  # bytes of output that are kept, for the message of a sandbox that does not start
DEATH = 10.0  # seconds that the kernel gets to end a tree of killed processes


class NoIsolation(Exception):
    """Programs cannot be shut in on this machine; one line says why."""


@dataclass(frozen=True)
class Guest:
    """A script that runs in a sandbox, and all that it gets from the host beside an empty folder.

    Args:
        pipes: their numbers are its first arguments; the caller closes its own copies.
        packages: the names of the packages that it may import.
        stdin: a file, or None for an empty input.
    """

    script: str
    pipes: tuple[IO[bytes], ...]
    packages: tuple[str, ...]
    stdin: IO[bytes] | None


class Box:
    """A guest in its sandbox. Leaving the context kills all that runs there."""

    def __init__(self, guest: Guest, isolation: str, limits: Limits, slot: int) -> None:
        self.isolation, self.said = isolation, b""
        self._first: int | None = None
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True))
            fds = [pipe.fileno() for pipe in guest.pipes]
            view = View(isolation, guest.script, tuple(map(str, fds)), guest.packages, folder, slot, limits)
            try:
                self.process = subprocess.Popen(
                    view.argv(),
                    stdin=guest.stdin or subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=view.environment(),
                    cwd=folder if isolation == "none" else "/",
                    pass_fds=fds,
                    start_new_session=True,
                )
            except OSError as e:
                raise NoIsolation(f"{e.filename} cannot be run ({e.strerror})") from e
            stack.callback(self._kill)
            self.usage = Usage(self.process.pid)
            assert self.process.stdout is not None
            self.output = stack.enter_context(self.process.stdout)
            self._closing = stack.pop_all()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def hold(self) -> None:
        """Take hold of the first process of the namespace: the kernel ends all others with it.

        To be called when trusted code has started there. Killing the launcher alone would not do: what a program
        does to its own parent-death signal is its affair.
        """
        if self.isolation == "none" or self._first is not None:
            return
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(FileNotFoundError, ProcessLookupError):  # ended already
            for child in children.read_text().split():
                self._first = os.pidfd_open(int(child))

    def drain(self) -> bool:
        """Take what it has written, without keeping it; False when there will be no more."""
        data = os.read(self.output.fileno(), 1 << 16)
        self.said += data[: KEEP - len(self.said)]
        return bool(data)

    def complaint(self) -> str:
        """The last line that it wrote, for a sandbox that did not start."""
        while _ready(self.output.fileno(), 1.0) and self.drain():
            pass
        return (self.said.decode(errors="replace").strip().splitlines() or [""])[-1][:300]

    def ending(self, seconds: float) -> str | None:
        """How it ended ("exit code 0", "signal 11"), or None where it still runs after that time."""
        until = time.monotonic() + seconds
        # WNOWAIT: its number stays its own until all of its group are killed
        while (end := os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
            if time.monotonic() > until:
                return None
            time.sleep(0.01)
        code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        # a launcher ends as its guest did: by the same signal (unshare), or with 128 + its number (bubblewrap)
        number = -code if code < 0 else code - 128
        return f"signal {number}" if number > 0 else f"exit code {code}"

    def _kill(self) -> None:
        self.hold()
        if self._first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self._first is not None:
            _ready(self._first, DEATH)
            os.close(self._first)
        self.process.wait()


def _ready(fd: int, seconds: float) -> bool:
    """Whether there is something to read, or an end, within that time; unlike select(2) for any number of a file."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))
