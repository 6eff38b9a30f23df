"""What a chat template says of its own accord."""

from __future__ import annotations

import re
from typing import Any

import jinja2


def own_system_text(tokenizer: Any) -> dict[str, Any]:
    """What a chat template says of its own.

    `template_system_prompt`: the system prompt that it inserts where none is given; `template_system_text`: what it
    adds to any; `template_has_date`: whether it can write the day's date.
    """
    said, user = "EVALSWEEP SYSTEM", [{"role": "user", "content": "EVALSWEEP USER"}]
    dated = {"template_has_date": "strftime_now" in str(tokenizer.chat_template)}
    try:
        bare = tokenizer.apply_chat_template(user, tokenize=False)
        given = tokenizer.apply_chat_template([{"role": "system", "content": said}, *user], tokenize=False)
    except (jinja2.TemplateError, ValueError):
        return dated  # a template that takes no system message, or not this conversation
    before, found, after = given.partition(said)
    added = _words(before, tokenizer)
    inserted = None
    if found and bare.startswith(before) and bare.endswith(after):
        inserted = str(bare[len(before) : len(bare) - len(after)]).strip()
    return {"template_system_prompt": inserted or None, "template_system_text": added or None, **dated}


def _words(text: str, tokenizer: Any) -> str:
    """A template's text without its marks and the names of roles; empty where nothing is said."""
    for mark in (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()):
        text = text.replace(mark, " ")
    rest = [
        w for w in re.findall(r"[A-Za-z]{2,}", text) if w.lower() not in ("system", "user", "inst", "sys", "im_start")
    ]
    return " ".join(text.split()) if len(rest) > 1 else ""
