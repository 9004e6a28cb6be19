"""The one door to litellm, and what has to be so before it opens.

Its import takes seconds, would fetch a price list from the network, and in older releases reads
`.env` files of folders above; two variables stop both. Releases 1.82.7 and 1.82.8 stole
credentials; `pyproject.toml` excludes them, and so does this door.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evoforge.errors import MissingToolError

__all__ = ["close_connections", "import_litellm"]

_STOLEN = ("1.82.7", "1.82.8")
_NOISE = (r"Item '.*' on TypedDict class '.*' is using the `ReadOnly`", r"Pydantic serializer warnings")
"""What litellm's records make pydantic say at the first call, and of replies with odd types."""
_LOCK = threading.Lock()


def import_litellm() -> Any:
    """The module, imported once.

    Raises:
        MissingToolError: it is not installed, or in one of the two releases never to be run.
    """
    with _LOCK:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        os.environ["LITELLM_MODE"] = "PRODUCTION"
        try:
            found = version("litellm")
        except PackageNotFoundError:
            raise MissingToolError(
                "models are asked through litellm; run in evoforge's folder: pip install -c constraints.txt -e ."
            ) from None
        if found in _STOLEN:
            raise MissingToolError(f"litellm {found} steals credentials; uninstall it, change your keys, take another")
        import litellm

        for text in _NOISE:
            warnings.filterwarnings("ignore", text, UserWarning)
        litellm.suppress_debug_info = True  # it would print advice on every error
        if litellm.client_session is None:
            import httpx
            from litellm.llms.custom_httpx.http_handler import get_ssl_configuration

            from evoforge.llm.guard import Guard

            litellm.sync_transport = Guard(get_ssl_configuration())  # of the clients that litellm makes itself
            litellm.client_session = httpx.Client(transport=litellm.sync_transport)  # of the openai package's
        return litellm


def close_connections() -> None:
    """Closes what litellm keeps open to servers; the next call opens it again."""
    litellm: Any = sys.modules.get("litellm")
    cache = getattr(litellm, "in_memory_llm_clients_cache", None)
    for client in list(getattr(cache, "cache_dict", {}).values()):
        close = getattr(client, "close", None)
        if callable(close) and not inspect.iscoroutinefunction(close):
            with contextlib.suppress(Exception):  # whatever it is that another release keeps there
                close()
    if cache is not None:
        cache.flush_cache()
    if litellm is not None and litellm.client_session is not None:
        litellm.client_session.close()
        litellm.sync_transport.shut()
        litellm.client_session = litellm.sync_transport = None
