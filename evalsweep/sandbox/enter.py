"""Inside new namespaces, before a guest: hides the host, gives up all rights, sets limits, becomes the guest.

    enter.py '{"root": ..., "layout": ..., "files": ..., "user": ..., "filter": ..., "limits": ..., "folder": ...,
               "argv": ...}'

Trusted code: nothing that a model wrote has run yet.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

# linux/mount.h
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, NOATIME, NODIRATIME, BIND, REC = 1, 2, 4, 8, 32, 1024, 2048, 4096, 16384
RELATIME, STRICTATIME = 1 << 21, 1 << 24
# linux/prctl.h
PDEATHSIG, SECCOMP, CAPBSET_DROP, NO_NEW_PRIVS = 1, 22, 24, 38
SECCOMP_MODE_FILTER = 2  # linux/seccomp.h
CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
KEYCTL = {"x86_64": 250, "aarch64": 219}  # asm/unistd.h
JOIN_SESSION_KEYRING = 1  # linux/keyctl.h

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = libc.mount(
        source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), options.encode() or None
    )
    if done != 0:
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}", target)


def build(root: str, layout: list[tuple[str, str, str]]) -> None:
    """The guest's view of the machine, below `root`: (form, path in the sandbox, what is there), parents first."""
    mount("tmpfs", root, "tmpfs", NOSUID | NODEV, "size=1m,mode=755")
    for form, path, what in layout:
        target = root + path
        if form == "link":
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib doubles a start's time
            os.symlink(what, target)  # noqa: PTH211
            continue
        is_file = form in ("ro", "dev") and not os.path.isdir(what)  # noqa: PTH112
        os.makedirs(os.path.dirname(target) if is_file else target, exist_ok=True)  # noqa: PTH103, PTH120
        if is_file and not os.path.exists(target):  # noqa: PTH110
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        if form in ("ro", "dev"):
            mount(what, target, None, BIND | REC)
        elif form == "tmpfs":
            mount("tmpfs", target, "tmpfs", NOSUID | NODEV, f"size={what},mode=1777")
        elif form == "hide":
            mount("tmpfs", target, "tmpfs", NOSUID | NODEV, "size=4k,nr_inodes=1,mode=555")
        elif form == "proc":
            mount("proc", target, "proc", NOSUID | NODEV | NOEXEC)
    writable = {root + path for form, path, _ in layout if form not in ("ro", "hide")}
    for path in mounts_below(root):
        if path not in writable:
            make_readonly(path)


def mounts_below(root: str) -> list[str]:
    """`root` and the mounts in it, those that came along with a bound folder included."""
    with open("/proc/self/mountinfo", "rb") as f:  # noqa: PTH123
        # proc(5): a space is written as \\040
        points = [os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1")) for line in f]
    return [point for point in points if point == root or point.startswith(root + "/")]


def make_readonly(path: str) -> None:
    """A user namespace may not take away the flags that a mount has, so they are repeated."""
    has = os.statvfs(path).f_flag
    flags = has & (NOEXEC | NOATIME | NODIRATIME) | NOSUID | NODEV
    if not has & NOATIME:
        flags |= RELATIME if has & 4096 else STRICTATIME  # 4096: ST_RELATIME of statvfs(3)
    mount("none", path, None, REMOUNT | BIND | RDONLY | flags)


def forbid_shared_memory() -> None:
    """System V segments count against no limit of a process once they are detached; theirs is the new namespace's.

    Where the namespace's owner may not say so (bubblewrap without root), the sandbox is the first to go instead.
    """
    with suppress(OSError), open("/proc/sys/kernel/shmmni", "w") as f:  # noqa: PTH123
        f.write("0")


def enclose(root: str) -> None:
    """A process below a chroot cannot make user namespaces, which would give it rights and memory without a limit."""
    os.chroot(root)
    os.chdir("/")


def give_up_rights(user: int | None) -> None:
    """No capability outlives the exec that follows, and none can be won back."""
    for capability in range(64):
        libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)  # fails for numbers past the last capability
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # all sets to none, and with them the ambient one, which bubblewrap fills
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def bind_to_parent() -> None:
    """End with the parent, and let no program be more than its user; after a change of user, which clears the first."""
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def leave_keyrings() -> None:
    """Join a new session keyring: keys of the user's session have no namespace.

    Thread and process keyrings end with the exec that follows. A user's keyring is found by the user namespace, or by
    the spare user's number, so it is a new one too. A kernel without keys, or a container that refuses the call,
    leaves none to reach; where there is a filter, it refuses later calls anyway.
    """
    number = KEYCTL.get(os.uname().machine)
    if number is not None:
        libc.syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), None)


def filter_calls(program: bytes) -> None:
    """Have the kernel refuse system calls by a classic BPF program, to all that this process starts too: seccomp(2)."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    filter_ = Program(len(program) // 8, program)
    if libc.prctl(SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def limit(limits: dict[str, int]) -> None:
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def main(spec: dict[str, Any]) -> None:
    # where memory runs out in spite of all limits, the sandbox goes first
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:  # noqa: PTH123
        f.write("1000")
    root = spec["root"]
    if root is not None:
        if spec["layout"]:
            build(root, spec["layout"])
        else:
            mount("/", root, None, BIND | REC)
        # empty files take memory too; bubblewrap has no word for their number
        mount("none", root + spec["folder"], None, REMOUNT | NOSUID | NODEV, f"nr_inodes={spec['files']}")
        forbid_shared_memory()
        make_readonly(f"{root}/proc")  # or a program makes itself the last to go where memory runs out
        enclose(root)
        give_up_rights(spec["user"])
        leave_keyrings()
    bind_to_parent()
    limit(spec["limits"])
    os.chdir(spec["folder"])
    if spec["filter"] is not None:
        filter_calls(bytes.fromhex(spec["filter"]))
    os.execv(spec["argv"][0], spec["argv"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
