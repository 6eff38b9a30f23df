"""What a sandboxed process sees and may use, and the command that starts it so: bubblewrap, unshare, or neither.

Files are allowed by name, all read-only (see `files`). Everything else of the host (homes, /tmp, /run, /var, models,
results) is not there, nor its network and processes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from evalsweep.sandbox import files, syscalls
from evalsweep.sandbox.files import Entry

GUESTS = Path(__file__).parent
DEVICES = ("null", "zero", "full", "random", "urandom")
INNER = "/inner"  # where bubblewrap's root is bound once more, to be entered with chroot
BWRAP = (
    *("bwrap", "--die-with-parent", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
    # what enter.py needs until it gives up all of them
    *("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_CHROOT", "--cap-add", "CAP_SETPCAP"),
)
# No process of bubblewrap's own, which is outside the chroot, beside a program of the same user. Not where root starts
# a program as another user: bubblewrap drops CAP_KILL, so the kernel would not end that program with its parent.
ALONE = ("--as-pid-1",)
UNSHARE = ("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")
ORPHAN = ("setpriv", "--pdeathsig", "KILL", "--")  # unshare itself does not end with its parent


@dataclass(frozen=True)
class Limits:
    """What a program may use; `processes` counts threads, and holds for its processes together."""

    seconds: float = 10.0  # CPU time of all processes of program and tests, from the moment that both are ready
    wall_factor: float = 6.0  # seconds of wall time a second of CPU time: for sleepers, and on a busy machine
    memory: int = 1 << 30  # bytes of address space a process
    total_memory: int = 1 << 30  # bytes that all processes of a sandbox hold, looked up ten times a second
    processes: int = 16  # a pool of two workers has three threads beside them
    file_size: int = 1 << 20  # bytes a file
    folder: int = 16 << 20  # bytes of all its files
    files: int = 4096
    open_files: int = 64

    @property
    def wall_seconds(self) -> float:
        return self.seconds * self.wall_factor


@dataclass(frozen=True)
class View:
    """One sandboxed process, before it starts: how it is shut in, what runs, and with how much.

    `slot` tells apart what runs at the same time; `folder` is an empty one of the host, which the caller deletes.
    `arguments` are the guest's, before the folder that it imports `packages` from.
    """

    isolation: str
    guest: str
    arguments: tuple[str, ...]
    packages: tuple[str, ...]
    folder: str
    slot: int
    limits: Limits

    def argv(self) -> list[str]:
        """The whole command."""
        if self.isolation == "none":
            return self._enter(str(GUESTS), None, [], None)
        user = _spare_user(self.slot)
        if self.isolation == "unshare":
            rights = [] if user is not None else ["--user", "--map-root-user"]
            return [*ORPHAN, *UNSHARE, *rights, "--", *self._enter("/guest", self.folder, self._layout(), user)]
        # Root becomes another user within: a user namespace of root's is still root to the kernel's count of processes.
        rights = [*ALONE, "--unshare-user"] if user is None else ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        drawn = [word for entry in self._layout() for word in _bwrap(*entry)]
        drawn += ["--dir", INNER, "--remount-ro", "/", "--"]
        return [*BWRAP, *rights, *drawn, *self._enter("/guest", INNER, [], user)]

    def environment(self) -> dict[str, str]:
        """All of it: nothing of the host's but the path of its libraries."""
        home = self.folder if self.isolation == "none" else "/tmp"
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",  # a program that lists a set answers the same on every run
            "OMP_NUM_THREADS": "1",  # numpy starts a thread a core, which count as processes
            "OPENBLAS_NUM_THREADS": "1",
        }
        libraries = os.environ.get("LD_LIBRARY_PATH")
        return environment | ({"LD_LIBRARY_PATH": libraries} if libraries else {})

    def _enter(self, guests: str, root: str | None, layout: list[Entry], user: int | None) -> list[str]:
        python = os.path.realpath(sys.executable)
        spec = {
            "root": root,
            "layout": layout,
            "files": self.limits.files,
            "user": user,
            "filter": None if root is None or (calls := syscalls.program()) is None else calls.hex(),
            "limits": self._rlimits(user),
            "folder": self.folder if self.isolation == "none" else "/tmp",
            # -I without -E: the environment is made above, and PYTHONHASHSEED must count
            "argv": [python, "-P", "-s", "-B", f"{guests}/{self.guest}", *self.arguments, self._packages()],
        }
        # bubblewrap has changed the root by the time this runs, unshare has not
        script = GUESTS if self.isolation != "bubblewrap" else guests
        return [python, "-I", "-S", "-B", f"{script}/enter.py", json.dumps(spec)]

    def _packages(self) -> str:
        if self.isolation != "none":
            return files.PACKAGES
        return str(files.link_packages(self.packages, Path(self.folder)))

    def _rlimits(self, user: int | None) -> dict[str, int]:
        return {
            "CPU": math.ceil(self.limits.seconds) + 2,  # should the host be late
            "AS": self.limits.memory,
            "FSIZE": self.limits.file_size,
            "NPROC": self.limits.processes + _counted(self.isolation, user),
            "NOFILE": self.limits.open_files,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }

    def _layout(self) -> list[Entry]:
        """Parents before children; a writable folder first, since Python may live below it."""
        devices = [("dev", f"/dev/{name}", f"/dev/{name}") for name in DEVICES]
        return [
            ("tmpfs", "/tmp", str(self.limits.folder)),
            *devices,
            *files.system(),
            *files.package_entries(self.packages),
            ("ro", "/guest", str(GUESTS)),
            ("proc", "/proc", ""),
            # the user's keys outside are named there
            *(("ro", path, "/dev/null") for path in ("/proc/keys", "/proc/key-users") if Path(path).exists()),
            ("link", "/dev/shm", "/tmp"),  # for the semaphores of multiprocessing
        ]


def _bwrap(form: str, path: str, what: str) -> tuple[str, ...]:
    """bubblewrap's words for a line of the layout; the folders that it makes unasked may be closed to other users."""
    if form == "hide":
        return ("--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path)
    parents = [str(parent) for parent in reversed(Path(path).parents)][1:]
    return (
        tuple(word for parent in parents for word in ("--perms", "0755", "--dir", parent))
        + {
            "ro": ("--ro-bind", what, path),
            "dev": ("--dev-bind", what, path),
            "link": ("--symlink", what, path),
            "proc": ("--proc", path),
            "tmpfs": ("--perms", "1777", "--size", what, "--tmpfs", path),
        }[form]
    )


def _spare_user(slot: int) -> int | None:
    """A user id that nobody has, for root to become: the limit on processes does not bind root, and counts by user.

    None where this process is not root, or cannot become anybody else (a container with one user).
    """
    if os.geteuid() != 0:
        return None
    mapped = [[int(n) for n in line.split()] for line in Path("/proc/self/uid_map").read_text().splitlines()]
    top = min(max(start + count for start, _, count in mapped), 1 << 31) - 3
    return top - (os.getpid() * 64 + slot) % (top // 8) if top > 1000 else None


def _counted(isolation: str, user: int | None) -> int:
    """How many processes the kernel counts against a sandbox's limit before its program starts any."""
    if user is not None:
        return 0
    release = tuple(int(n) for n in re.findall(r"\d+", platform.release())[:2])
    if isolation != "none" and release >= (5, 14):  # user namespaces have counts of their own
        return 1 if isolation == "unshare" else 0  # unshare itself is in the new one
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # it has just ended
            continue
        if int(fields["Uid"].split()[0]) == os.getuid():
            total += int(fields["Threads"])
    return total
