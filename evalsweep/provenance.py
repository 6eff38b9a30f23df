"""What a run ran on: versions, git, machine, command line, and hashes of content."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from evalsweep.redact import redact

PACKAGES = {
    "evalsweep": "evalsweep",
    "lm_eval": "lm_eval",
    "transformers": "transformers",
    "torch": "torch",
    "tokenizers": "tokenizers",
    "datasets": "datasets",
    "accelerate": "accelerate",
    "hydra": "hydra-core",
    "omegaconf": "omegaconf",
    "mlflow": "mlflow",
    "numpy": "numpy",
    "scipy": "scipy",
}


def versions() -> dict[str, str]:
    """Installed versions by the name people use; `absent` where a package is not installed. Imports none of them."""
    found = {"python": platform.python_version()}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def machine() -> dict[str, Any]:
    """Operating system, processor and, through nvidia-smi, the driver and names of the GPUs."""
    gpus = _gpus()
    return {
        "os": platform.platform(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "gpu_driver": gpus[0][1] if gpus else None,
        "gpu_names": [name for name, _ in gpus],
        "gpu_count": len(gpus),
    }


def git(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the checkout that `folder` lies in; None for both where there is no git."""
    commit = _run(["git", "-C", str(folder), "rev-parse", "HEAD"])
    status = _run(["git", "-C", str(folder), "status", "--porcelain"])
    return {"git_commit": commit or None, "git_dirty": bool(status) if commit else None}


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command as typed, without secrets."""
    words = list(sys.argv if argv is None else argv)
    if words and words[0].endswith("__main__.py"):
        words[0:1] = ["python", "-m", Path(words[0]).parent.name]
    elif words:
        words[0] = Path(words[0]).name
    return redact(" ".join(f"'{w}'" if " " in w else w for w in words))


def text_hash(text: str) -> str:
    """16 hexadecimal digits of the SHA-256 of UTF-8 text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def value_hash(value: Any) -> str:
    """`text_hash` of canonical JSON; what JSON does not know goes in by its `str`."""
    return text_hash(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))


def files_hash(paths: Iterable[Path]) -> str:
    """16 hexadecimal digits over the names and the content of files; each file is read once a process."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        stat = path.stat()
        digest.update(path.name.encode() + b"\0" + _content(path, stat.st_size, stat.st_mtime_ns))
    return digest.hexdigest()[:16]


def folder_hash(folder: Path) -> str:
    """Hash the files that lie in a folder, as `files_hash` does."""
    return files_hash(path for path in folder.iterdir() if path.is_file())


@functools.lru_cache(maxsize=4096)
def _content(path: Path, _size: int, _mtime: int) -> bytes:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").digest()


@functools.cache
def _gpus() -> list[tuple[str, str]]:
    table = _run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = [line.rsplit(",", 1) for line in table.splitlines() if "," in line]
    return [(name.strip(), driver.strip()) for name, driver in rows]


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
