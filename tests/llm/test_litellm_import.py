"""The import of litellm in a process of its own: no network, no `.env`, and only where it is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evoforge
from evoforge.errors import MissingToolError
from evoforge.llm import litellm_import

_WATCHED = """
import os, sys
met = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "subprocess.Popen"):
        met.append((event, str(arguments)))
    if event == "open" and str(arguments[0]).rpartition("/")[2] == ".env":
        met.append((event, str(arguments)))
sys.addaudithook(hook)
import evoforge.llm
assert "litellm" not in sys.modules
from evoforge.llm import ModelSpec, prices_of
prices_of(ModelSpec("openai/gpt-4o-mini"))
assert "litellm" in sys.modules
print(met, os.environ.get("STOLEN_BY_DOTENV"), os.environ["LITELLM_MODE"])
"""


def test_importing_opens_no_socket_and_reads_no_env_file(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder in (tmp_path, inner):
        (folder / ".env").write_text("STOLEN_BY_DOTENV=yes\nOPENAI_API_KEY=sk-from-a-file\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LITELLM")}
    environ["PYTHONPATH"] = str(Path(evoforge.__file__).parents[1])
    (inner / "watch.py").write_text(_WATCHED)
    command = [sys.executable, str(inner / "watch.py")]
    done = subprocess.run(command, cwd=inner, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[] None PRODUCTION\n"


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8"])
def test_the_stealing_releases_are_never_run(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_import, "version", lambda name: version)
    with pytest.raises(MissingToolError, match=f"litellm {version} steals"):
        litellm_import.import_litellm()
