"""Answers as programs: the code of an answer, and the tests that its document brings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

from evalsweep.engine.models.thinking import FENCE
from evalsweep.errors import BadInput, first_line
from evalsweep.sandbox.run import Program, assertions, function_under_test

# A fence of three or more backticks or tildes; one as long, or longer, closes it.
_FENCED = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)])?[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1", re.DOTALL | re.MULTILINE)
_OPEN = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*\n", re.MULTILINE)


def program_of(document: Mapping[str, Any], answer: str, begun: str = "") -> Program | None:
    """Make the program of an answer, with the tests of its document; None where the answer is empty.

    Args:
        document: has `prompt`, `entry_point` and `test` (which defines `check`), or `test_list` (assertions) with
            `test_setup_code` or `test_imports`.
        answer: what the model wrote.
        begun: the words that its answer was made to begin with, which may open a code block.

    Errors: BadInput for a document that has neither.
    """
    prompt = str(document.get("prompt") or "") if "entry_point" in document else ""
    entry_point, tests = _tests(document)
    code = code_of(answer, entry_point, prompt, begun)
    return None if code is None else Program(code, entry_point, tests, prompt)


def code_of(answer: str, entry_point: str, prompt: str = "", begun: str = "") -> str | None:
    """Give the code of an answer: its last complete code block that defines the function, else its last one, or its
    text as it goes on from the prompt.

    A block that defines the function stands after the prompt, whose imports and helpers it may lean on.
    """
    if not answer.strip():
        return None
    block = _last_block(answer, entry_point)
    if block is not None and _defines(block, entry_point):
        block = textwrap.dedent(block)  # a block in a list is indented with it
        return f"{_stub(prompt)}\n{block}" if prompt else block
    if begun.count(FENCE) % 2:  # the answer goes on within the block that its begin has opened
        answer = answer.partition(FENCE)[0]
        return prompt + answer if answer.strip() else None
    return prompt + (answer if block is None else block)


def _defines(code: str, name: str) -> bool:
    name = re.escape(name)
    return re.search(rf"^\s*(?:async\s+)?def\s+{name}\b|^{name}\s*=", code, re.MULTILINE) is not None


def _last_block(answer: str, entry_point: str) -> str | None:
    """Give the last complete code block, else an open one that nothing but words stand before; None without one.

    Blocks that show a program's output or its use often follow: the last that defines the function goes first, then the
    last that is indented and so goes on from the prompt.
    """
    blocks = [match.group(2) for match in _FENCED.finditer(answer)]
    if blocks:
        defining = [block for block in blocks if _defines(block, entry_point)]
        bodies = [block for block in blocks if block.strip() and block.lstrip("\n")[:1] in " \t"]
        return (defining or bodies or blocks)[-1]
    start = _OPEN.search(answer)
    if start is None:
        return None
    before = answer[: start.start()]
    if before.strip() and before[:1] in " \t":
        return before  # code that goes on from the prompt, then a fence that closes it
    return answer[start.end() :]


def _stub(prompt: str) -> str:
    """Close the function that the prompt leaves open, so that a definition can follow."""
    return prompt.rstrip() + "\n    pass\n"


def _tests(document: Mapping[str, Any]) -> tuple[str, str]:
    """Give the name of the tested function, and tests that define `check`."""
    if "test" in document and "entry_point" in document:
        return str(document["entry_point"]), str(document["test"])
    listed = document.get("test_list")
    if not listed:
        raise BadInput(
            "task.scorer=code",
            f"a document has no tests: prompt, entry_point and test, or test_list; it has {', '.join(document)}",
        )
    setup = str(document.get("test_setup_code") or "\n".join(document.get("test_imports") or []))
    statements = list(map(str, listed))
    try:
        entry_point = str(document.get("entry_point") or function_under_test(statements))
        return entry_point, assertions(entry_point, statements, setup)
    except (ValueError, SyntaxError) as e:
        raise BadInput("task.scorer=code", f"{first_line(e)}: {' '.join(statements)[:100]}") from e
