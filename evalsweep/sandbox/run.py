"""Runs programs against their tests: two sandboxes each, so that no program touches what judges it.

The tester executes the dataset's tests and calls the candidate through a pipe; the candidate executes what the model
wrote. The verdict comes from a pipe that the tester alone has.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import os
import queue
import selectors
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import IO, Any

from evalsweep.sandbox import syscalls
from evalsweep.sandbox.box import Box, Guest, NoIsolation
from evalsweep.sandbox.files import MissingPackage, package_paths, package_versions
from evalsweep.sandbox.view import Limits

__all__ = [
    "ISOLATIONS",
    "Limits",
    "MissingPackage",
    "NoIsolation",
    "Program",
    "Verdict",
    "assertions",
    "filtered",
    "isolation",
    "package_versions",
    "run",
    "function_under_test",
]

ISOLATIONS = ("bubblewrap", "unshare")  # the best first; "none" is there for who asks for it
START = 60.0  # seconds for two Pythons to start on a busy machine
TICK = 0.1  # seconds between two looks at what a program uses, and until an interrupt is noticed
VERDICT = 16 << 10  # bytes of a tester's lines


@dataclass(frozen=True)
class Program:
    """What a model wrote, and how it is tested.

    Args:
        code: prompt and completion; nothing in it is trusted.
        entry_point: the function that the tests call.
        tests: the dataset's code, which defines ``check(candidate)``.
        stub: the prompt alone, for the helpers that it defines and the tests lean on.
    """

    code: str
    entry_point: str
    tests: str
    stub: str


@dataclass(frozen=True)
class Verdict:
    """Whether a program passed, and why not in a line."""

    passed: bool
    reason: str


def assertions(entry_point: str, statements: Sequence[str], setup: str = "") -> str:
    """The tests of a benchmark whose tests are statements that call a function by its name.

    Errors: SyntaxError for a statement that is no Python.
    """
    # parsed and written anew, a statement is one line, which the verdict can name and whose strings bear no indenting
    lines = [line for text in statements for line in map(ast.unparse, ast.parse(text).body)]
    body = "\n".join([f"{entry_point} = candidate", *(lines or ["raise AssertionError('there are no tests')"])])
    return f"{setup}\n\ndef check(candidate):\n{textwrap.indent(body, '    ')}\n"


def function_under_test(statements: Sequence[str]) -> str:
    """Find the function that all the statements call, for a benchmark that does not name it. Errors: ValueError."""
    called = [list(dict.fromkeys(_called(text))) for text in statements]
    for name in called[0] if called else ():
        if all(name in names for names in called) and not hasattr(builtins, name):
            return name
    raise ValueError("the tests do not all call one function")


def _called(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


class _Stopped(Exception):
    """The caller was interrupted."""


@functools.cache
def isolation() -> str:
    """The best way of shutting programs in that works here, tried by running one. Errors: NoIsolation."""
    reasons = []
    for name in ISOLATIONS:
        reason = why_not(name)
        if reason is None:
            return name
        reasons.append(f"{name}: {reason}")
    raise NoIsolation("; ".join(reasons))


def why_not(name: str) -> str | None:
    """Why an isolation does not work on this machine, or None where it does."""
    probe = Program("def one():\n    return 1", "one", "def check(candidate):\n    assert candidate() == 1", "")
    try:
        (verdict,) = run([probe], name, packages=(), workers=1)
    except NoIsolation as e:
        return str(e)
    return None if verdict.passed else verdict.reason


def filtered() -> bool:
    """Whether sandboxes here have a filter of system calls; on architectures without one, the rest must do."""
    return syscalls.program() is not None


def run(
    programs: Sequence[Program],
    isolation: str,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    packages: Sequence[str] = ("numpy",),
    workers: int | None = None,
    done: Callable[[int], None] | None = None,
) -> list[Verdict]:
    """The verdicts, in the order of the programs.

    Args:
        isolation: "bubblewrap", "unshare", or "none", which stops accidents but no attack: such a program can read
            the user's files, use the network, leave processes behind and forge its verdict.
        packages: names of installed packages that programs may import, with what these require.
        workers: programs at a time; as many as there are cores where it is None.
        done: told how many are done, in the caller's thread, after each.

    Errors: NoIsolation where a sandbox does not start, MissingPackage where a package is not there. Whatever is
    raised, an interrupt too, no process is left.
    """
    if isolation not in (*ISOLATIONS, "none"):
        raise ValueError(f"isolation={isolation!r}: one of {', '.join(ISOLATIONS)}, none")
    shown = tuple(packages)
    package_paths(shown)
    count = max(1, min(workers or len(os.sched_getaffinity(0)), len(programs)))
    slots: queue.SimpleQueue[int] = queue.SimpleQueue()
    for slot in range(count):
        slots.put(2 * slot)  # two sandboxes each
    stop = threading.Event()

    def judge(program: Program) -> Verdict:
        slot = slots.get()
        try:
            return _judge(program, isolation, limits, shown, slot, stop)
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(count, "sandbox") as pool:
        try:
            futures = [pool.submit(judge, program) for program in programs]
            for finished, future in enumerate(as_completed(futures), 1):
                future.result()
                if done is not None:
                    done(finished)
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _judge(
    program: Program, isolation: str, limits: Limits, packages: tuple[str, ...], slot: int, stop: threading.Event
) -> Verdict:
    """Start both sandboxes, watch them, end them."""
    with ExitStack() as stack:
        requests_read, requests_write = _pipe(stack)
        replies_read, replies_write = _pipe(stack)
        verdict_read, verdict_write = _pipe(stack)
        task = stack.enter_context(tempfile.TemporaryFile())
        task.write(json.dumps(asdict(program)).encode())
        task.seek(0)
        guest = Guest("tester.py", (requests_write, replies_read, verdict_write), packages, task)
        tester = stack.enter_context(Box(guest, isolation, limits, slot))
        guest = Guest("candidate.py", (requests_read, replies_write), packages, None)
        candidate = stack.enter_context(Box(guest, isolation, limits, slot + 1))
        # only the guests hold them now, so that each sees the other's end
        for end in (requests_read, requests_write, replies_read, replies_write, verdict_write):
            end.close()
        return _Watch(tester, candidate, verdict_read, limits, stop).verdict()


def _pipe(stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return stack.enter_context(os.fdopen(read, "rb", 0)), stack.enter_context(os.fdopen(write, "wb", 0))


class _Watch:
    """Both sandboxes of a program, until there is a verdict or a limit is passed."""

    def __init__(self, tester: Box, candidate: Box, verdict: IO[bytes], limits: Limits, stop: threading.Event) -> None:
        self.tester, self.candidate, self.pipe, self.limits, self.stop = tester, candidate, verdict, limits, stop
        self.started = False
        self.deadline = time.monotonic() + START
        self.cpu_at_start = 0.0
        self.heard = b""

    def verdict(self) -> Verdict:
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            for box in (self.tester, self.candidate):
                selector.register(box.output, selectors.EVENT_READ, box)
            look = 0.0
            while True:
                if time.monotonic() >= look:
                    over = self._over()
                    if over is not None:
                        return over
                    look = time.monotonic() + TICK
                for key, _ in selector.select(TICK):
                    if key.data is None:
                        found = self._listen()
                        if found is not None:
                            return found
                    elif not key.data.drain():
                        selector.unregister(key.fileobj)

    def _over(self) -> Verdict | None:
        """The verdict on a program that has passed a limit. Errors: NoIsolation where it has not even started."""
        if self.stop.is_set():
            raise _Stopped
        late = time.monotonic() > self.deadline
        if not self.started:
            if late:
                raise NoIsolation(f"a sandbox did not start within {START:g} s")
            return None
        if self._cpu_seconds() - self.cpu_at_start > self.limits.seconds:
            return Verdict(False, f"timed out after {self.limits.seconds:g} s of CPU time")
        if late:
            return Verdict(False, f"timed out after {self.limits.wall_seconds:g} s of waiting")
        most = self.limits.total_memory
        if any(box.usage.memory_bytes(most) > most for box in (self.tester, self.candidate)):
            return Verdict(False, f"used more than {most >> 20} MiB of memory")
        return None

    def _cpu_seconds(self) -> float:
        return self.tester.usage.cpu_seconds() + self.candidate.usage.cpu_seconds()

    def _listen(self) -> Verdict | None:
        """What the tester says: first that both are there, then the verdict."""
        data = os.read(self.pipe.fileno(), VERDICT)
        self.heard += data
        if not data or len(self.heard) > VERDICT:
            return self._silent()
        *lines, self.heard = self.heard.split(b"\n")
        for line in map(json.loads, lines):
            if "started" in line:
                self.tester.hold()
                self.candidate.hold()
                self.started = True
                self.cpu_at_start = self._cpu_seconds()
                self.deadline = time.monotonic() + self.limits.wall_seconds
            else:
                return self._over() or self._verdict(line)
        return None

    def _verdict(self, line: dict[str, Any]) -> Verdict:
        reason = line["reason"]
        if line.get("ended"):
            reason += f" ({self.candidate.ending(1.0) or 'it closed its pipe'})"
        return Verdict(line["passed"], reason)

    def _silent(self) -> Verdict:
        """The tester ended without a verdict."""
        how = self.tester.ending(1.0) or "it still runs"
        if self.started:
            return Verdict(False, f"the tests ended without a verdict ({how})")
        raise NoIsolation(self.candidate.complaint() or self.tester.complaint() or f"a sandbox did not start ({how})")
