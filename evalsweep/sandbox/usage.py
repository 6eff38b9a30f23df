"""What all processes of a sandbox use together, read from /proc by the host.

Limits of the kernel's hold for a process; control groups hold for all, but few users may make them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")  # a second, the unit of /proc/<pid>/stat


class Usage:
    """The use of a launcher's descendants: in a namespace of processes none can get away from it."""

    def __init__(self, launcher: int) -> None:
        self.launcher = launcher
        self._own: dict[tuple[int, str], float] = {}  # by number and time of start, the ended ones included
        self._used = 0.0

    def cpu_seconds(self) -> float:
        """CPU time of all processes, ended ones included as far as they were seen or waited for; it never falls."""
        with_waited = 0.0
        for pid in (self.launcher, *self._descendants()):
            try:
                # proc(5): the name in brackets may hold anything; state, the third field, follows it
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:  # it has just ended
                continue
            utime, stime, waited_utime, waited_stime = map(int, fields[11:15])
            with_waited += (utime + stime + waited_utime + waited_stime) / TICKS
            self._own[pid, fields[19].decode()] = (utime + stime) / TICKS
        self._used = max(self._used, with_waited, sum(self._own.values()))
        return self._used

    def memory_bytes(self, enough: int) -> int:
        """Memory of all processes, a page that n of them share counted 1/n for each.

        The kernel walks through all pages for that, so it is asked only where the plain sum is above `enough`.
        """
        pids = self._descendants()
        most = sum(_kilobytes(Path(f"/proc/{pid}/status"), ("RssAnon:", "RssShmem:")) for pid in pids) << 10
        if most <= enough:
            return most
        shared_out = [_kilobytes(Path(f"/proc/{pid}/smaps_rollup"), ("Pss:",)) << 10 for pid in pids]
        return sum(shared_out) or most

    def _descendants(self) -> list[int]:
        found, waiting = [], [self.launcher]
        while waiting:
            children = _children(waiting.pop())
            found += children
            waiting += children
        return found


def _children(pid: int) -> list[int]:
    """The children of all threads of a process; those that end meanwhile may be missing."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - ten times a second
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _kilobytes(path: Path, names: tuple[str, ...]) -> int:
    """The sum of some lines of a file of /proc; 0 for a process that has ended."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(names))
