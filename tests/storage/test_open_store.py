"""Opening a store: what is made, what is refused, and what the refusal says."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from evoforge.core import MetaPrompt, Strategy
from evoforge.errors import MissingToolError, NotFoundError, StoreError, StoreVersionError, UsageError
from evoforge.storage import Store, _migrate, _schema, check_store, open_store, probe_store, shown_url, upgrade_store
from evoforge.testing.store_suite import a_call, a_ticket, fill, kernel, make_campaign

MIGRATIONS = Path(_migrate.__file__).with_name("migrations")


def test_a_missing_file_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "ü" / "evo forge #1.db"
    url = f"sqlite:///{path}"
    with open_store(url) as store:
        make_campaign(store)
    assert path.is_file()
    with open_store(url, create=False) as store:
        assert [row.name for row in store.campaigns()] == ["c"]
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    url = f"sqlite:///{folder}/evoforge.db"
    with open_store(url) as store:
        make_campaign(store)
        with pytest.raises(UsageError, match=r"in UTF-8, got 'caf\\udce9'"):
            store.campaign(os.fsdecode(b"caf\xe9"))
    assert [path.name for path in folder.iterdir()] == ["evoforge.db"]
    with open_store(url, read_only=True) as store:
        assert [row.name for row in store.campaigns()] == ["c"]
    assert probe_store(url)


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no store at .*evoforge run"):
        open_store(f"sqlite:///{tmp_path}/deep/evoforge.db", create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    with pytest.raises(NotFoundError, match="holds no evoforge store"):
        open_store(f"sqlite:///{tmp_path}/empty.db", create=False)
    open_store(f"sqlite:///{tmp_path}/empty.db").close()
    assert check_store(f"sqlite:///{tmp_path}/empty.db") == []


def test_a_relative_path_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///archive/evoforge.db") as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.close()
        make_campaign(store)
    assert check_store(f"sqlite:///{tmp_path}/archive/evoforge.db") == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("url", ["evoforge.db", "mysql://host/db", "sqlite://", "sqlite:///:memory:", ""])
def test_what_is_no_store_url_is_misuse(url: str) -> None:
    with pytest.raises(UsageError, match=r"sqlite"):
        open_store(url)


def test_a_folder_or_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="found a folder"):
        open_store(f"sqlite:///{tmp_path}")
    with pytest.raises(StoreError, match="found something else"):
        open_store("sqlite:////dev/null")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot make the store's folder .*--store"):
        open_store(f"sqlite:///{tmp_path}/file/sub/evoforge.db")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look at " * 20)
    with pytest.raises(StoreError, match="not a SQLite database"):
        open_store(f"sqlite:///{text}")
    assert text.read_text().startswith("not a database")
    foreign = tmp_path / "music.db"
    with closing(sqlite3.connect(foreign)) as raw:
        raw.execute("CREATE TABLE songs (name TEXT)")
    before = foreign.read_bytes()
    for action in (open_store, upgrade_store):
        with pytest.raises(StoreError, match=r"something else.*songs"):
            action(f"sqlite:///{foreign}")
    with closing(sqlite3.connect(foreign)) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    assert len(before) == foreign.stat().st_size


def test_read_only_reads_and_does_not_write(sqlite_store: Store, store_path: Path) -> None:
    make_campaign(sqlite_store)
    with open_store(f"sqlite:///{store_path}", read_only=True) as reader:
        assert reader.campaign("c").name == "c"
        fill(sqlite_store, "c", [kernel()])
        assert len(reader.evaluations()) == 2  # a live writer is seen
        with pytest.raises(StoreError, match="reading only"):
            reader.update_campaign("c", state="running")
        with pytest.raises(StoreError, match="reading only"), reader.lock_campaign("c"):
            raise AssertionError("locked")
    with pytest.raises(NotFoundError):
        open_store(f"sqlite:///{store_path}x", read_only=True)


_AS_NOBODY = """
import os, sys
import sqlalchemy.dialects.sqlite
from evoforge.errors import StoreError
from evoforge.storage import _open, open_store, probe_store
folder = sys.argv[1]
_open.open_sql(f"sqlite:///{folder}/evoforge.db", create=False, read_only=True).check()  # imports all it needs
if os.getuid() == 0:  # root may write anywhere
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_store(f"sqlite:///{folder}/new.db")
except StoreError as error:
    print(error)
for name in ("new.db", "evoforge.db"):
    try:
        probe_store(f"sqlite:///{folder}/{name}")
    except StoreError as error:
        print(error)
with open_store(f"sqlite:///{folder}/evoforge.db", create=False) as store:
    print(len(store.evaluations()), store.check())
    try:
        store.update_campaign("c", state="running")
    except StoreError as error:
        print(error)
"""


def test_a_read_only_folder(sqlite_store: Store, store_path: Path, tmp_path: Path) -> None:
    make_campaign(sqlite_store)
    fill(sqlite_store, "c", [kernel()])
    sqlite_store.close()  # the last one out folds the log into the file
    outer = [parent for parent in tmp_path.parents if parent.stat().st_uid == os.getuid() and len(parent.parts) > 2]
    modes = {folder: folder.stat().st_mode for folder in (*outer, tmp_path)}
    try:
        for folder in outer:
            folder.chmod(modes[folder] | 0o555)
        store_path.chmod(0o444)
        tmp_path.chmod(0o555)
        command = [sys.executable, "-c", _AS_NOBODY, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True)
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)
    assert done.returncode == 0, done.stderr
    created, no_room, unwritable, read, written = done.stdout.splitlines()
    assert no_room.startswith("cannot write in ") and no_room.endswith("; give another --store")
    assert "cannot be written; check the permissions" in unwritable
    assert "read-only; give another --store" in created
    assert read == "2 []"
    assert "reading only" in written
    assert not (tmp_path / "new.db").exists()


def test_a_newer_store_says_upgrade_evoforge(store_path: Path) -> None:
    with closing(sqlite3.connect(store_path)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
        raw.commit()
    for action in (open_store, upgrade_store, check_store):
        with pytest.raises(StoreVersionError, match=r"schema 9999, newer.*upgrade evoforge"):
            action(f"sqlite:///{store_path}")


@pytest.mark.parametrize("damage", ["UPDATE alembic_version SET version_num = ''", "DELETE FROM alembic_version"])
def test_a_store_that_does_not_know_its_schema_is_damaged(store_path: Path, damage: str) -> None:
    with closing(sqlite3.connect(store_path)) as raw:
        raw.execute(damage)
        raw.commit()
    for action in (open_store, upgrade_store, check_store):
        with pytest.raises(StoreError, match=r"does not say which schema it has; restore a copy"):
            action(f"sqlite:///{store_path}")


def test_an_older_store_is_upgraded_by_command_and_keeps_its_rows(
    sqlite_store: Store, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version, played by one more revision."""
    make_campaign(sqlite_store)
    fill(sqlite_store, "c", [kernel()])
    before = sqlite_store.evaluations()
    sqlite_store.close()
    scripts = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, scripts)
    (scripts / "versions" / "r0002_next.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision, down_revision = '9999', '{_schema.REVISIONS[-1]}'\n"
        "def upgrade():\n"
        "    op.add_column('campaigns', sa.Column('colour', sa.Text, server_default='green', nullable=False))\n"
    )
    monkeypatch.setattr(_migrate, "_SCRIPTS", scripts)
    monkeypatch.setattr(_schema, "REVISIONS", (*_schema.REVISIONS, "9999"))
    url = f"sqlite:///{store_path}"
    with pytest.raises(StoreVersionError, match=rf"evoforge db upgrade --store {url}"):
        open_store(url)
    assert upgrade_store(url) == "9999"
    assert upgrade_store(url) == "9999"
    with open_store(url) as store:
        assert store.evaluations() == before
    with closing(sqlite3.connect(store_path)) as raw:
        assert raw.execute("SELECT colour FROM campaigns").fetchall() == [("green",)]


def test_a_store_from_before_models_keeps_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as the first schema made it, with all that version could write."""
    scripts, url = tmp_path / "migrations", f"sqlite:///{tmp_path}/old.db"
    shutil.copytree(MIGRATIONS, scripts)
    for path in (scripts / "versions").glob("r000[2-9]*.py"):
        path.unlink()

    def rows(store: Store) -> list[object]:
        return [store.campaigns(), store.evaluations(), store.proposals("c"), store.placements("c"),
                store.candidates("c"), store.meta_prompts("c"), store.lineage(kernel("b").id)]  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setattr(_migrate, "_SCRIPTS", scripts)
        patch.setattr(_schema, "REVISIONS", ("0001",))
        with open_store(url) as store:
            make_campaign(store)
            fill(store, "c", [kernel("a"), kernel("b", parents=(kernel("a").id,))])
            store.add_meta_prompt("c", MetaPrompt("plain", 1, "cpp", Strategy(), {"Task": "x"}))
            before = rows(store)
    with closing(sqlite3.connect(tmp_path / "old.db")) as raw:
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "proposals" in tables and not tables & {"llm_calls", "tickets"}
    with pytest.raises(StoreVersionError, match="evoforge db upgrade"):
        open_store(url)
    assert upgrade_store(url) == _schema.REVISIONS[-1]
    with open_store(url) as store:
        assert rows(store) == before
        assert store.last_ticket("c") == 1
        assert store.calls("c") == [] == store.tickets("c")
        store.record_call("c", a_call())
        store.issue_ticket("c", a_ticket(2, parents=(kernel("b").id,)))
        assert store.check() == []


def test_a_failing_migration_changes_nothing(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, scripts)
    (scripts / "versions" / "r0002_next.py").write_text(
        f"from alembic import op\nrevision, down_revision = '9999', '{_schema.REVISIONS[-1]}'\n"
        "def upgrade():\n    op.drop_table('placements')\n    op.execute('SELECT * FROM nothing')\n"
    )
    url = f"sqlite:///{store_path}"
    with monkeypatch.context() as patch:
        patch.setattr(_migrate, "_SCRIPTS", scripts)
        patch.setattr(_schema, "REVISIONS", (*_schema.REVISIONS, "9999"))
        with pytest.raises(StoreError, match="nothing"):
            upgrade_store(url)
    assert check_store(url) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql+psycopg://me:s:e/c@r@et@host:5432/db", "postgresql+psycopg://me:***@host:5432/db"),
        (
            "postgresql://me@host/db?password=secret&sslmode=prefer",
            "postgresql://me@host/db?password=***&sslmode=prefer",
        ),
        ("postgresql:/me:secret@host/db", "postgresql:/me:***@host/db"),
        ("me:secret@host/db", "me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:///a:b@c/evoforge.db", "sqlite:///a:b@c/evoforge.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/db", "postgresql:/me:secret@host/db", "postgresql://me:secret@host:port/db"]
)
def test_a_refused_url_keeps_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="postgresql") as caught:
        open_store(url)
    assert "secret" not in str(caught.value) and "***" in str(caught.value)


def test_probing_says_whether_a_campaign_could_be_written_and_changes_nothing(
    sqlite_store: Store, store_path: Path, tmp_path: Path
) -> None:
    make_campaign(sqlite_store)
    assert probe_store(f"sqlite:///{store_path}") is True
    assert probe_store(f"sqlite:///{tmp_path}/deep/er/evoforge.db") is False
    (tmp_path / "empty.db").touch()
    assert probe_store(f"sqlite:///{tmp_path}/empty.db") is False
    assert not (tmp_path / "deep").exists() and (tmp_path / "empty.db").stat().st_size == 0
    with pytest.raises(StoreError, match=r"found a file; give another --store"):
        probe_store(f"sqlite:///{tmp_path}/empty.db/evoforge.db")
    with pytest.raises(StoreError, match="found a folder"):
        probe_store(f"sqlite:///{tmp_path}")
    with closing(sqlite3.connect(store_path)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
        raw.commit()
    with pytest.raises(StoreVersionError):
        probe_store(f"sqlite:///{store_path}")


def test_upgrading_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        upgrade_store(f"sqlite:///{tmp_path}/evoforge.db")
    assert list(tmp_path.iterdir()) == []


def test_the_migrations_make_the_schema_that_the_code_expects(store_path: Path) -> None:
    import sqlalchemy
    from alembic.autogenerate import compare_metadata
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    engine = sqlalchemy.create_engine(f"sqlite:///{store_path}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, _schema.metadata) == []
    engine.dispose()
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    chain = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(chain)) == _schema.REVISIONS


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_many_processes_may_create_one_store_at_once(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    code = "import sys; from evoforge.storage import open_store; open_store(sys.argv[1]).campaigns(); print('ok')"
    url = f"sqlite:///{tmp_path}/new/evoforge.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    children = [
        subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        out, err = child.communicate()
        assert out == "ok\n", err
    assert check_store(url) == []


def test_who_waits_for_another_writer_says_so_once(
    sqlite_store: Store, store_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("evoforge.storage._open._QUIET_MS", 50)
    with closing(sqlite3.connect(store_path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(1.0, other.execute, ["ROLLBACK"])
        release.start()
        make_campaign(sqlite_store)
        release.join()
    (said,) = caplog.messages
    assert str(store_path) in said and "kept busy by another process; waiting for it, up to 30 s" in said
    make_campaign(sqlite_store, name="next")
    assert len(caplog.messages) == 1


def test_importing_the_package_imports_no_database_library(store_path: Path) -> None:
    code = (
        "import sys, evoforge.storage as s\n"
        "assert not {'sqlalchemy', 'alembic'} & set(sys.modules), 'sqlalchemy on import'\n"
        "s.open_store(sys.argv[1], create=False).campaigns()\n"
        "assert 'alembic' not in sys.modules, 'alembic for a store that is current'\n"
    )
    done = subprocess.run([sys.executable, "-c", code, f"sqlite:///{store_path}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_postgresql_url_hides_its_password_and_names_what_is_missing() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        with pytest.raises(MissingToolError, match=r"evoforge\[postgres\]"):
            open_store("postgresql://me:secret@127.0.0.1:1/db")
    else:
        with pytest.raises(StoreError) as caught:
            open_store("postgresql://me:secret@127.0.0.1:1/db")
        assert "secret" not in str(caught.value)
