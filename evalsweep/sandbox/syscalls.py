"""A filter of system calls: which the kernel refuses to a sandboxed process.

The namespaces do the shutting in. The filter takes away what they do not cover: kernel keyrings, sockets to the
hypervisor and to the kernel's own services, and memory that no limit of a process counts.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

# linux/bpf_common.h: load a word of the call, compare it, return; linux/seccomp.h: what is returned
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; the low half of 64 little-endian bits
X32 = 0x40000000  # calls of another ABI of x86_64 begin here

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


@dataclass(frozen=True)
class Calls:
    """Numbers of system calls on an architecture, and its own number (linux/audit.h)."""

    architecture: int
    sockets: tuple[int, ...]  # socket, socketpair: AF_UNIX alone, which asyncio and multiprocessing use
    refused: tuple[int, ...]


# Refused: add_key, request_key, keyctl (keyrings have no namespace); shmget, msgget, memfd_create, memfd_secret (memory
# that belongs to no process); perf_event_open, bpf, userfaultfd, io_uring_setup (which opens sockets past this filter).
CALLS = {
    "x86_64": Calls(0xC000003E, (41, 53), (248, 249, 250, 29, 68, 319, 447, 298, 321, 323, 425)),
    "aarch64": Calls(0xC00000B7, (198, 199), (217, 218, 219, 194, 186, 279, 447, 241, 280, 282, 425)),
}


def program() -> bytes | None:
    """The filter for this machine as classic BPF (seccomp(2)), or None where the numbers of its calls are not known."""
    calls = CALLS.get(platform.machine())
    if calls is None or sys.maxsize < 2**32:  # a 32-bit Python makes calls with other numbers
        return None
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _instructions(calls))


def _instructions(calls: Calls) -> Iterable[Instruction]:
    yield LOAD, 0, 0, ARCHITECTURE
    yield EQUAL, 1, 0, calls.architecture
    yield _refuse(errno.ENOSYS)  # the calls of another ABI have other numbers
    yield LOAD, 0, 0, NUMBER
    yield AT_LEAST, 0, 1, X32
    yield _refuse(errno.ENOSYS)
    for number in calls.refused:
        yield EQUAL, 0, 1, number
        yield _refuse(errno.EPERM)
    for number in calls.sockets:
        yield EQUAL, 0, 4, number
        yield LOAD, 0, 0, FIRST_ARGUMENT
        yield EQUAL, 0, 1, socket.AF_UNIX
        yield RETURN, 0, 0, ALLOW
        yield _refuse(errno.EAFNOSUPPORT)
    yield RETURN, 0, 0, ALLOW


def _refuse(error: int) -> Instruction:
    return RETURN, 0, 0, REFUSE | error
