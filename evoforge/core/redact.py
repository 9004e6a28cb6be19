"""Keys out of texts, before a text reaches a reason, a log or the store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from evoforge.core.text import secrets_of

__all__ = ["redact", "without_keys"]

_HIDDEN = "[key]"
_LOOKS_LIKE = re.compile(
    r"""
      \b(?:sk|pk|rk|gsk|xai|hf|nvapi|pplx|ghp|github_pat|key)[-_][\w*.…-]{6,}   # providers' prefixes, masked ones too
    | \bAIza[\w*-]{10,}
    | \b(?:AKIA|ASIA)[A-Z0-9*]{8,}
    | \beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?                                       # signed tokens
    | (?<=Bearer\s)\S{6,}
    | (?<=api_key=)[^\s&'",]{4,}
    | (?<=provided:\s)[^\s'",]{6,}                                              # "Incorrect API key provided: …"
    """,
    re.VERBOSE | re.IGNORECASE,
)


_NAME = re.compile(r"key|[a-z]+_[^_]*_", re.IGNORECASE)
_SURE = 16
"""Characters from which on a word that looks like a key is one in program text, too."""


def redact(text: str, secrets: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> str:
    """`text` without the given secrets, secret-looking environment variables' values, and what looks like a key.

    Values below six characters stay: hiding them would eat ordinary words.
    """
    given = {secret for secret in secrets if len(secret) >= 6}
    for secret in sorted(given.union(secrets_of(environ)), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _LOOKS_LIKE.sub(_HIDDEN, text)


def without_keys(text: str) -> str:
    """Program text without what is sure to be a key: it has names such as key_padding_mask."""

    def hidden(at: re.Match[str]) -> str:
        word = at[0]
        mixed = any(sign.isdigit() for sign in word) or word.isupper()
        return _HIDDEN if len(word) >= _SURE and mixed and not _NAME.match(word) else word

    return _LOOKS_LIKE.sub(hidden, text)
