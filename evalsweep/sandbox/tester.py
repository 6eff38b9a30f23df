"""Inside a sandbox of its own: the dataset's tests, which call the candidate through a pipe. The verdict is made here.

    tester.py <fd of requests> <fd of replies> <fd of the verdict> <folder of importable packages>

The task comes as JSON on standard input.

Only plain values come back from a candidate, so an object that is equal to everything never gets here.
"""

from __future__ import annotations

import builtins
import json
import os
import select
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from evalsweep.sandbox import values, wire
else:
    sys.path.append(__file__.rpartition("/")[0])
    import values
    import wire

    sys.path.pop()


class Peer:
    """The candidate, as the tester knows it: one question, one answer."""

    def __init__(self, requests: int, replies: int, verdict: int) -> None:
        self.requests, self.replies, self.verdict = requests, replies, verdict

    def tell(self, **line: object) -> None:
        os.write(self.verdict, json.dumps(line).encode() + b"\n")

    def fail(self, reason: str, **more: object) -> NoReturn:
        """End here and now: tests that catch every error must not outlive a candidate that broke the rules."""
        self.tell(passed=False, reason=" ".join(reason.split())[:200], **more)
        os._exit(0)

    def fail_by(self, raised: Any, tests: str) -> NoReturn:
        """End with the error that the candidate sent."""
        try:
            reason = told(error(raised), tests)
        except (values.Broken, LookupError, TypeError, ValueError):
            reason = "sent a value of a wrong kind"
        self.fail(reason)

    def greet(self) -> None:
        """Wait until the candidate's process is there, and tell the host that the time runs."""
        try:
            wire.receive(self.replies)
        except values.Broken:
            os._exit(1)  # no line at all: the sandbox failed, not the program
        self.tell(started=True)

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question and wait for its answer, which carries the same random id; anything else is a failure."""
        self.expect_silence()
        question["id"] = os.urandom(16).hex()
        try:
            wire.send(self.requests, question)
            reply = wire.receive(self.replies)
        except (values.Broken, OSError) as e:
            if isinstance(e, OSError) or not str(e):
                self.fail("ended before the tests were done", ended=True)
            self.fail(f"sent {e}")
        except values.NotPlain:
            self.fail("the tests send a value too large for the sandbox")
        if reply.get("id") != question["id"]:
            self.fail("sent an answer that nobody asked for")
        return reply

    def expect_silence(self) -> None:
        waiting = select.poll()
        waiting.register(self.replies, select.POLLIN)
        if waiting.poll(0) and os.read(self.replies, 1):
            self.fail("sent an answer that nobody asked for")

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the candidate's function as if it were here: its value, its error, what it did to its arguments."""
        try:
            question = {"args": values.encode(list(args)), "kwargs": values.encode(kwargs)}
        except values.NotPlain as e:
            self.fail(f"the tests pass {e}")
        reply = self.ask(**question)
        if "refused" in reply:
            self.fail(str(reply["refused"]))
        failure = value = None
        try:
            for mine, name in ((list(args), "args"), (kwargs, "kwargs")):
                if reply.get(name) is not None:
                    write_back(mine, values.decode(reply[name]))
            if "error" in reply:
                failure = error(reply["error"])
            else:
                value = values.decode(reply["value"])
        except (values.Broken, LookupError, TypeError, ValueError):
            self.fail("sent a value of a wrong kind")
        if failure is not None:
            raise failure
        return value


def error(data: dict[str, Any]) -> Exception:
    """The candidate's error, so that `except`, `str` and `args` see the same. Errors: Broken, LookupError, ValueError.

    An error of the candidate's own class becomes one of a new class below the same builtin.
    """
    name, text = str(data["name"]), str(data["text"])
    bases = (getattr(builtins, str(base), None) for base in data["bases"])
    base = next((b for b in bases if isinstance(b, type) and issubclass(b, Exception)), Exception)
    args = [text] if data["args"] is None else values.decode(data["args"])
    try:
        made = base(*args)
    except Exception:  # noqa: BLE001 - an own class may leave its base other arguments than that one takes
        base, made = Exception, Exception(text)
    if (type(made).__name__, str(made)) == (name, text):
        return made
    own: type[Exception] = type(name, (base,), {"__module__": "program", "__str__": lambda self: text})
    return own(*made.args)


def write_back(mine: Any, after: Any) -> None:
    """Do to the tests' own lists, dicts and sets, by position or by name, what the candidate did to its copies."""
    if type(mine) is not type(after) or len(mine) != len(after):
        raise values.Broken
    for key in mine if isinstance(mine, dict) else range(len(mine)):
        replace(mine[key], after[key])


def replace(mine: Any, theirs: Any) -> None:
    """Give a container of the tests what a container of the same kind holds."""
    if (isinstance(mine, list) and isinstance(theirs, list)) or (
        isinstance(mine, bytearray) and isinstance(theirs, bytearray)
    ):
        mine[:] = theirs
    if (isinstance(mine, dict) and isinstance(theirs, dict)) or (isinstance(mine, set) and isinstance(theirs, set)):
        mine.clear()
        mine.update(theirs)
    if isinstance(mine, deque) and isinstance(theirs, deque):
        mine.clear()
        mine.extend(theirs)


def prepare(task: dict[str, str], function: Callable[..., Any]) -> Callable[..., Any]:
    """The dataset's `check`, among the helpers that the prompt defines; the function itself is the candidate's."""
    names: dict[str, Any] = {"__name__": "tests"}
    try:
        stub = compile(task["stub"], "<stub>", "exec", dont_inherit=True)
    except SyntaxError:
        stub = compile(task["stub"] + "\n    pass\n", "<stub>", "exec", dont_inherit=True)
    exec(stub, names)
    names[task["entry_point"]] = function
    exec(compile(task["tests"], "<tests>", "exec", dont_inherit=True), names)
    check: Callable[..., Any] = names["check"]
    return check


def told(e: BaseException, tests: str) -> str:
    """An error on one line; where an assertion has no message, the line of the tests that raised it."""
    text, trace = str(e), e.__traceback__
    while isinstance(e, AssertionError) and not text and trace:
        if trace.tb_frame.f_code.co_filename == "<tests>":
            text = tests.splitlines()[trace.tb_lineno - 1].strip()
        trace = trace.tb_next
    return f"{type(e).__name__}: {text}" if text else type(e).__name__


def main(requests: int, replies: int, verdict: int, packages: str) -> None:
    wire.import_only_from(packages)
    peer = Peer(requests, replies, verdict)
    task = json.load(sys.stdin)

    def function(*args: Any, **kwargs: Any) -> Any:
        return peer.call(args, kwargs)

    function.__name__ = function.__qualname__ = task["entry_point"]
    peer.greet()
    wire.discard_output()
    try:
        check = prepare(task, function)
    except BaseException as e:  # noqa: BLE001 - whatever it is, the verdict names it
        peer.fail(f"the tests cannot run: {told(e, task['tests'])}")
    reply = peer.ask(code=task["code"], entry_point=task["entry_point"])
    if "error" in reply:
        peer.fail_by(reply["error"], task["tests"])
    try:
        check(function)
    except BaseException as e:  # noqa: BLE001 - whatever it is, the verdict names it
        peer.fail(told(e, task["tests"]))
    peer.expect_silence()
    peer.tell(passed=True, reason="passed")
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
