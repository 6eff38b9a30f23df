"""Takes secrets out of text before it is written, logged or sent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_NAME = r"(?:api[_-]?key|access[_-]?key|auth[_-]?token|token|password|passwd|secret|credentials?)"
_SECRET_NAME = re.compile(rf"(?<![a-z]){_NAME}(?![a-z])|(?:^|_)key$", re.IGNORECASE)
_PATTERNS = (
    # user:password@ of a URI; to the last @, because passwords may hold @ and /
    (re.compile(r"(?<=://)[^\s'\"]+(?=@)"), HIDDEN),
    # name=value, name: value, --name value
    (
        re.compile(rf"(?<![a-z])({_NAME}['\"]?\s*[=:]\s*|--[\w-]*{_NAME}\s+)(['\"]?)[^\s'\"&,}}]+", re.IGNORECASE),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}"), rf"\1{HIDDEN}"),
    # keys known by their first letters: Hugging Face, OpenAI and the like, GitHub, AWS
    (re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})\b"), HIDDEN),
)


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` without passwords in URIs, values of secret-looking names, known key formats, and secrets of `environ`."""
    for value in _secrets_of(os.environ if environ is None else environ):
        text = text.replace(value, HIDDEN)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_tree(value: Any, environ: Mapping[str, str] | None = None) -> Any:
    """The same for nested mappings and lists; a value under a secret-looking key goes whole."""
    if isinstance(value, str):
        return redact(value, environ)
    if isinstance(value, Mapping):
        return {
            k: HIDDEN if isinstance(v, str) and v and _SECRET_NAME.search(str(k)) else redact_tree(v, environ)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_tree(v, environ) for v in value]
    return value


def _secrets_of(environ: Mapping[str, str]) -> list[str]:
    # Short values are left: taking out every "1" of a text would destroy it.
    found = [v for k, v in environ.items() if len(v) >= 8 and _SECRET_NAME.search(k)]
    return sorted(found, key=len, reverse=True)
