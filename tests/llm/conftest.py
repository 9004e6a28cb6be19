"""litellm imported once, before any test turns warnings into errors."""

import warnings

import pytest

from evoforge.llm.litellm_import import import_litellm


@pytest.fixture(scope="session", autouse=True)
def _litellm() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_litellm()
