"""Answers on disk: nothing that was kept is lost, and nothing that was torn is taken for an answer."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalsweep.responses import Responses

ODD = "half a pair \ud83d, a line\nbreak, \x00, \u2028, 東京"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Responses]]:
    """Open the answers of a folder, and close them in the end."""
    with contextlib.ExitStack() as stack:
        yield lambda folder=tmp_path: stack.enter_context(contextlib.closing(Responses(folder)))


def writing(file, write):
    """The file, but for how it writes."""
    return type("Odd", (), {"__getattr__": lambda _, name: getattr(file, name), "write": lambda _, data: write(data)})()


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.jsonl")
    return path


@pytest.mark.parametrize("folder", [True, False])
def test_what_is_put_is_there_as_it_was(opened, tmp_path, folder):
    kept = opened(tmp_path / "responses" if folder else None)
    assert len(kept) == 0
    assert "a" not in kept
    with pytest.raises(KeyError):
        kept.get("a")
    kept.put("a", {"value": ODD})
    kept.put("b", {"value": [-1.5, True]})
    kept.put("a", {"value": "again"})
    assert len(kept) == 2
    assert kept.get("b") == {"value": [-1.5, True]}
    assert kept.get("a") in ({"value": ODD}, {"value": "again"})
    kept.close()
    assert kept.get("b") == {"value": [-1.5, True]}


def test_another_process_reads_what_was_kept_and_writes_a_file_of_its_own(opened, tmp_path):
    first = opened()
    first.put("a", {"value": ODD})
    code = (
        "import sys; from pathlib import Path; from evalsweep.responses import Responses\n"
        "kept = Responses(Path(sys.argv[1]))\nkept.put('b', {'value': kept.get('a')['value'][:4]})"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert "b" not in first
    first.refresh()
    assert first.get("b") == {"value": "half"}
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    first.put("c", {"value": 1.0})
    first.refresh()
    assert opened().get("c") == {"value": 1.0}


def test_nothing_is_made_for_no_answer(opened, tmp_path):
    opened(tmp_path / "responses").close()
    assert not (tmp_path / "responses").exists()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_last_line_that_was_torn_counts_as_not_given(opened, tmp_path, cut):
    kept = opened()
    for key in "abc":
        kept.put(key, {"value": f"answer {key} " + "x" * 60})
    kept.close()
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    again = opened()
    assert [key in again for key in "abc"] == [True, True, False]
    assert again.get("b")["value"].startswith("answer b")
    again.put("c", {"value": "new"})
    assert opened().get("c") == {"value": "new"}


@pytest.mark.parametrize("damage", [b"0", b"\n", b"\xff", b" "])
@pytest.mark.parametrize("place", [0, 5, 12, 30])
def test_a_damaged_line_is_passed_over_and_the_others_are_read(opened, tmp_path, damage, place):
    kept = opened()
    for key in ("a" * 32, "b" * 32, "c" * 32):
        kept.put(key, {"value": "answer " + key})
    kept.close()
    path = only_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:place] + damage + lines[1][place + 1 :]
    path.write_bytes(b"".join(lines))
    again = opened()
    assert "b" * 32 not in again
    assert again.torn >= 1
    assert again.get("a" * 32) == {"value": "answer " + "a" * 32}
    assert again.get("c" * 32) == {"value": "answer " + "c" * 32}


def test_after_a_full_disk_writing_goes_on_and_only_the_torn_line_is_lost(opened, tmp_path, monkeypatch):
    kept = opened()
    kept.put("a", {"value": "one"})
    file = kept._file
    assert file is not None

    def full(data):
        file.write(bytes(data[:7]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(kept, "_file", writing(file, full))
    with pytest.raises(OSError, match="No space left"):
        kept.put("b", {"value": "two"})
    assert "b" not in kept
    monkeypatch.setattr(kept, "_file", file)
    kept.put("c", {"value": "three"})
    assert [kept.get(key)["value"] for key in "ac"] == ["one", "three"]
    again = opened()
    assert ([key in again for key in "abc"], again.torn) == ([True, False, True], 1)


def test_a_write_that_takes_only_some_bytes_is_gone_on_with(opened, tmp_path, monkeypatch):
    kept = opened()
    kept.put("a", {"value": "one"})
    file = kept._file
    assert file is not None

    monkeypatch.setattr(kept, "_file", writing(file, lambda data: file.write(bytes(data[:3]))))
    kept.put("b", {"value": "two"})
    monkeypatch.setattr(kept, "_file", file)
    assert opened().get("b") == {"value": "two"}
