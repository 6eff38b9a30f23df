"""Inside the sandbox: the program that a model wrote. It serves calls of one function, and knows nothing of the tests.

    candidate.py <fd of requests> <fd of replies> <folder of importable packages>

Whatever the program does to this process, it can only change its own answers: the tester counts those alone.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalsweep.sandbox import values, wire
else:
    sys.path.append(__file__.rpartition("/")[0])
    import values
    import wire

    sys.path.pop()


def main(requests: int, replies: int, packages: str) -> None:
    wire.send(replies, {"hello": True})
    task = wire.receive(requests)
    wire.discard_output()
    wire.import_only_from(packages)
    function = None
    reply: dict[str, Any]
    try:
        function = define(task["code"], task["entry_point"])
        reply = {}
    except Exception as e:  # noqa: BLE001 - any error of the program is the answer
        reply = {"error": raised(e)}
    wire.send(replies, {"id": task["id"], **reply})
    while True:
        call = wire.receive(requests)
        try:
            wire.send(replies, {"id": call["id"], **answer(function, call)})
        except values.NotPlain as e:
            wire.send(replies, {"id": call["id"], "refused": f"returned {e}"})


def define(code: str, entry_point: str) -> Any:
    """Run the program and give its function; as a module that is imported, so `if __name__ == "__main__"` stays out."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    exec(compile(code, "<program>", "exec", dont_inherit=True), module.__dict__)
    try:
        return getattr(module, entry_point)
    except AttributeError:
        raise NameError(f"name '{entry_point}' is not defined") from None


def answer(function: Any, call: dict[str, Any]) -> dict[str, Any]:
    """What the function returns or raises, and its arguments as it leaves them. Errors: values.NotPlain.

    SystemExit is not caught: a program that leaves has not answered.
    """
    args, kwargs = values.decode(call["args"]), values.decode(call["kwargs"])
    try:
        reply = {"value": values.encode(function(*args, **kwargs))}
    except values.NotPlain:
        raise
    except Exception as e:  # noqa: BLE001 - any error of the program is the answer
        reply = {"error": raised(e)}
    return {**reply, "args": plain(args), "kwargs": plain(kwargs)}


def plain(value: Any) -> Any:
    """A value for the wire, or None where the program put into it what cannot be sent."""
    try:
        return values.encode(value)
    except Exception:  # noqa: BLE001 - methods of the program's objects run here
        return None


def raised(error: Exception) -> dict[str, Any]:
    """An error by the names of its class and of that one's bases, with its arguments and its message."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    own = type(error).__name__
    return {"name": own, "bases": names, "args": plain(list(error.args)), "text": text(error)}


def text(error: Exception) -> str:
    """The message of an error; its own `__str__` may fail."""
    try:
        return str(error)[:10_000]
    except Exception:  # noqa: BLE001 - the program wrote that method
        return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
