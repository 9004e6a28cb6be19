"""The SQL store keeps the contract, on SQLite and, where a server is given, on PostgreSQL."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evoforge.core import Kind, MetaPrompt, Status, Strategy
from evoforge.errors import CampaignLockedError, StoreError
from evoforge.storage import Owner, Store, open_store
from evoforge.storage._check import find_problems
from evoforge.storage.sql import SqlStore
from evoforge.testing.store_suite import StoreSuite, a_call, a_ticket, an_evaluation, fill, kernel, make_campaign, task
from tests.storage.conftest import on_server


class Server:
    """A PostgreSQL server as a database of it sees it: what ends all sessions and refuses new ones is a restart."""

    def __init__(self, database: str) -> None:
        self._database = database

    def stop(self) -> None:
        on_server(f"ALTER DATABASE {self._database} WITH ALLOW_CONNECTIONS false")
        on_server(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{self._database}'")

    def start(self) -> None:
        on_server(f"ALTER DATABASE {self._database} WITH ALLOW_CONNECTIONS true")


class SqlSuite(StoreSuite):
    """What SQL stores promise besides."""

    def test_what_is_written_often_reads_no_set_up(self, store: Store) -> None:
        """Every graph of a task is in there: megabytes."""
        import sqlalchemy

        assert isinstance(store, SqlStore)
        make_campaign(store)
        said: list[str] = []
        sqlalchemy.event.listen(store._engine, "before_cursor_execute", lambda *about: said.append(about[2]))
        with store.lock_campaign("c"):
            fill(store, "c", [kernel("a")])
            store.update_campaign("c", wall_s=1.0)
            store.replace_call("c", store.record_call("c", a_call()), a_call())
            store.issue_ticket("c", a_ticket(1))
            store.settle_ticket("c", 1, "answered")
        assert len(said) > 9 and not [statement for statement in said if "setup" in statement]

    def test_what_is_written_during_a_check_is_no_problem(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows of tables that are read later refer to what was not there when the first one was read."""
        make_campaign(store)
        fill(store, "c", [kernel("a")])
        read_so_far: list[str] = []

        def beside_a_campaign(read: Callable[[str], Iterable[Mapping[str, Any]]]) -> list[str]:
            def reading(table: str) -> Iterable[Mapping[str, Any]]:
                rows = list(read(table))
                if table not in read_so_far:
                    read_so_far.append(table)
                    name = f"d{len(read_so_far)}"
                    with ThreadPoolExecutor(1) as pool:  # on a connection of its own, as another process has
                        pool.submit(make_campaign, store, name, task=task(source=name)).result()
                        pool.submit(fill, store, name, [kernel(name)]).result()
                return rows

            return find_problems(reading)

        monkeypatch.setattr("evoforge.storage.sql.find_problems", beside_a_campaign)
        assert store.check() == []
        assert len(store.campaigns()) == len(read_so_far) + 1 > 4


class TestSqliteStore(SqlSuite):
    @pytest.fixture
    def store(self, sqlite_store: Store) -> Store:
        return sqlite_store


class TestPostgresStore(SqlSuite):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        with open_store(postgres_url) as store:
            yield store

    @pytest.fixture
    def server(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
        monkeypatch.setattr("evoforge.storage.sql._LOOK_EVERY_S", 0.05)
        server = Server(postgres_url.rpartition("/")[2])
        yield server
        server.start()

    def test_a_search_outlives_a_restart_of_the_server(
        self, store: Store, postgres_url: str, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        """And stays the campaign's only coordinator."""
        make_campaign(store)
        with open_store(postgres_url) as other:
            with store.lock_campaign("c"):
                server.stop()
                again = threading.Timer(1.0, server.start)
                again.start()
                fill(store, "c", [kernel("a")])
                again.join()
                (said,) = [message for message in caplog.messages if "waiting" in message]
                assert "cannot be reached; waiting for it, up to 300 s" in said
                assert other.is_held("c")
                with pytest.raises(CampaignLockedError, match="is being written"), other.lock_campaign("c"):
                    raise AssertionError("two coordinators")
            assert not other.is_held("c")
            assert len(other.evaluations()) == 2

    def test_who_waited_in_vain_for_a_server_does_not_wait_again(
        self, store: Store, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_campaign(store)
        monkeypatch.setattr("evoforge.storage.sql._PATIENCE_S", 0.2)
        for times in (1, 2):
            server.stop()
            for _ in range(2):
                with pytest.raises(StoreError, match="cannot be reached"):
                    store.campaign("c")
            assert len([message for message in caplog.messages if "waiting" in message]) == times
            server.start()
            assert store.campaign("c").name == "c"

    def test_a_lock_that_another_took_after_a_restart_is_lost(
        self, store: Store, postgres_url: str, server: Server
    ) -> None:
        make_campaign(store)
        with open_store(postgres_url) as other, store.lock_campaign("c"):
            server.stop()
            server.start()
            with other.lock_campaign("c"), pytest.raises(CampaignLockedError, match="lost"):
                store.update_campaign("c", wall_s=2.0)
            with pytest.raises(CampaignLockedError, match="lost"):
                store.update_campaign("c", wall_s=2.0)
            assert other.campaign("c").wall_s == 0.0


def run_python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_was_acknowledged_survives_kill_9(sqlite_store: Store, store_path: Path) -> None:
    make_campaign(sqlite_store)
    writer = run_python(
        """
        import sys
        from evoforge.core import Kind
        from evoforge.storage import open_store
        from evoforge.testing.store_suite import an_evaluation, kernel, placed

        store = open_store("sqlite:///" + sys.argv[1], create=False)
        with store.lock_campaign("c"):
            for ticket in range(100_000):
                candidate = kernel(str(ticket))
                rows = [an_evaluation(candidate), an_evaluation(candidate, kind=Kind.CONFIRM)]
                ids = store.record_outcome("c", ticket, candidate, rows, [placed(candidate)])
                print(ticket, *ids, flush=True)
        """,
        store_path,
    )
    assert writer.stdout is not None
    with writer:
        acknowledged = [next(writer.stdout).split() for _ in range(25)]
        with pytest.raises(CampaignLockedError, match=f"process {writer.pid}"), sqlite_store.lock_campaign("c"):
            raise AssertionError("the writer was still alive")
        writer.send_signal(signal.SIGKILL)
        acknowledged += [line.split() for line in writer.stdout if line.endswith("\n") and len(line.split()) == 3]
    with open_store(f"sqlite:///{store_path}", create=False) as store:
        assert store.check() == []
        by_ticket: dict[int | None, list[int]] = {}
        for row in store.evaluations(campaign="c"):
            by_ticket.setdefault(row.ticket, []).append(row.id)
        for ticket, *ids in acknowledged:
            assert by_ticket[int(ticket)] == [int(number) for number in ids]
        assert all(len(ids) == 2 for ids in by_ticket.values())  # whole outcomes or none
        assert len(store.placements("c")) == len(store.proposals("c")) == len(by_ticket)
        with store.lock_campaign("c"):  # the dead writer's lock is taken over
            pass


def test_a_lock_holds_across_processes_and_dies_with_its_owner(sqlite_store: Store) -> None:
    make_campaign(sqlite_store)
    sleeper = run_python("import time; print('up', flush=True); time.sleep(60)")
    assert sleeper.stdout is not None
    with sleeper:
        next(sleeper.stdout)
        theirs = Owner.of(sleeper.pid)
        context = sqlite_store.lock_campaign("c", theirs)
        context.__enter__()
        with pytest.raises(CampaignLockedError, match="resume c"), sqlite_store.lock_campaign("c"):
            raise AssertionError("locked twice")
        sleeper.kill()
        sleeper.wait()
        with sqlite_store.lock_campaign("c") as mine:
            context.__exit__(None, None, None)  # a late release must not free what is mine now
            with pytest.raises(CampaignLockedError), sqlite_store.lock_campaign("c"):
                raise AssertionError("locked twice")
        assert mine.pid == os.getpid()


def test_an_owner_that_an_older_version_wrote_still_holds(sqlite_store: Store) -> None:
    import psutil

    make_campaign(sqlite_store)
    older = Owner(os.getpid(), psutil.Process().create_time(), "token")
    context = sqlite_store.lock_campaign("c", Owner.from_text(older.to_text()))
    context.__enter__()
    with pytest.raises(CampaignLockedError), sqlite_store.lock_campaign("c"):
        raise AssertionError("locked twice")


def test_a_reused_process_number_is_not_the_owner(sqlite_store: Store) -> None:
    make_campaign(sqlite_store)
    earlier = Owner(os.getpid(), Owner.of(1).started, "token")
    context = sqlite_store.lock_campaign("c", earlier)
    context.__enter__()
    with sqlite_store.lock_campaign("c"):
        pass


def test_who_lost_its_lock_to_another_writes_no_more(sqlite_store: Store, store_path: Path) -> None:
    """As when a server was restarted: sessions end, and with them the locks."""
    make_campaign(sqlite_store)
    gone = Owner(os.getpid(), Owner.of(1).started, "token")  # in the eyes of others
    with open_store(f"sqlite:///{store_path}") as other, sqlite_store.lock_campaign("c", gone):
        sqlite_store.update_campaign("c", wall_s=1.0)
        with other.lock_campaign("c"):
            for write in (
                lambda: sqlite_store.update_campaign("c", wall_s=2.0),
                lambda: fill(sqlite_store, "c", [kernel("a")]),
            ):
                with pytest.raises(CampaignLockedError, match="lost"):
                    write()
            other.update_campaign("c", wall_s=3.0)
    assert sqlite_store.campaign("c").wall_s == 3.0 and not sqlite_store.evaluations()
    sqlite_store.update_campaign("c", wall_s=4.0)  # who holds no lock may


def test_two_stores_on_one_file_see_each_other(sqlite_store: Store, store_path: Path) -> None:
    make_campaign(sqlite_store)
    with open_store(f"sqlite:///{store_path}") as other:
        fill(other, "c", [kernel("a")])
        assert len(sqlite_store.evaluations()) == 2
        make_campaign(other, "d")
    assert [row.name for row in sqlite_store.campaigns()] == ["c", "d"]


def test_a_reader_is_not_held_up_by_a_writer(sqlite_store: Store, store_path: Path) -> None:
    make_campaign(sqlite_store)
    with closing(sqlite3.connect(store_path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE campaigns SET state = 'half way'")
        assert sqlite_store.campaign("c").state == "created"
        writer.execute("ROLLBACK")


def test_the_database_itself_refuses_a_broken_reference(sqlite_store: Store, store_path: Path) -> None:
    """Should a check be forgotten: foreign keys are declared for all, and on in our connections."""
    row = "INSERT INTO parent_edges (child, position, parent) VALUES ('x', 0, 'y')"
    assert isinstance(sqlite_store, SqlStore)
    with pytest.raises(StoreError, match="FOREIGN KEY"), sqlite_store._writes() as connection:
        connection.exec_driver_sql(row)
    with closing(sqlite3.connect(store_path)) as raw:
        declared = {
            (table, row[3], row[2], row[4])
            for (table,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for row in raw.execute(f"PRAGMA foreign_key_list({table})")
        }
    from evoforge.storage._check import REFERENCES

    assert declared == set(REFERENCES)


DAMAGE = {
    "an evaluation that lost its timings": (
        "UPDATE evaluations SET body = :body WHERE kind = 'trial'",
        "must carry timings",
    ),
    "a body cut short": ("UPDATE evaluations SET body = substr(body, 1, 40) WHERE kind = 'trial'", "cannot be read"),
    "an unknown status": ("UPDATE evaluations SET status = 'FINE' WHERE kind = 'trial'", "cannot be read"),
    "a beautified objective": ("UPDATE evaluations SET objective = 9 WHERE kind = 'trial'", "says objective 9"),
    "other parameter values": (
        "UPDATE evaluations SET params = '{\"T\":8}' WHERE kind = 'trial'",
        "other parameter values",
    ),
    "a placement without its evaluation": ("UPDATE placements SET evaluation = 999", "evaluations 999"),
    "a placement on another's evaluation": ("UPDATE placements SET params = '{\"T\":8}'", "measured something else"),
    "a placement on a wrong result": (
        "UPDATE evaluations SET status = 'WRONG', objective = NULL, latency_ms = NULL, body = :body",
        "which is WRONG",
    ),
    "an unknown action": ("UPDATE placements SET action = 'GIFT'", "unknown action"),
    "an edited source": ("UPDATE candidates SET source = source || ' '", "its id was made from"),
    "an edited task": ("UPDATE tasks SET body = replace(body, 'class Model', 'class Other')", "its id was made from"),
    "an edited target": ("UPDATE targets SET body = replace(body, 'a model', 'another')", "its id was made from"),
    "an unreadable target": ("UPDATE targets SET body = '{}'", "cannot be read"),
    "a lost candidate": ("DELETE FROM candidates", "refers to candidates"),
    "a call without its price": ("UPDATE llm_calls SET usd = -1", "usd must be zero or more"),
    "a call that ended strangely": ("UPDATE llm_calls SET outcome = 'FINE'", "cannot be read"),
    "more cached than asked": ("UPDATE llm_calls SET cached_tokens = 99999", "tokens cached"),
    "a ticket in no state": ("UPDATE tickets SET state = 'lost'", "state must be one of"),
    "a ticket's lost parent": ("UPDATE tickets SET parents = '[\"ab\"]'", "refers to candidates 'ab'"),
    "a ticket cut short": ("UPDATE tickets SET exemplars = '['", "cannot be read"),
    "a placement cut short": ("UPDATE placements SET params = '{\"T\"'", "placement 1 cannot be read"),
    "a placement of a list": ("UPDATE placements SET params = '[]'", "placement 1 cannot be read"),
    "a placement without a cell": ("UPDATE placements SET cell = 'x'", "placement 1 cannot be read"),
    "parameter values cut short": ("UPDATE evaluations SET params = '{'", "evaluation 1 cannot be read"),
    "a configuration cut short": ("UPDATE campaigns SET config = substr(config, 1, 9)", "campaign 'c' cannot be read"),
    "a configuration of nothing": ("UPDATE campaigns SET config = 'null'", "its config is no mapping"),
    "a set-up cut short": ("UPDATE campaigns SET setup = '{'", "campaign 'c' cannot be read"),
    "a mask cut short": ("UPDATE campaigns SET reachable = '[[0,'", "campaign 'c' cannot be read"),
    "a lock cut short": ("UPDATE campaigns SET lock_owner = '[1,'", "campaign 'c' cannot be read"),
    "a meta-prompt cut short": ("UPDATE meta_prompts SET body = '{'", "meta-prompt plain@1 of campaign 'c' cannot"),
    "an empty meta-prompt": ("UPDATE meta_prompts SET body = '[]'", "meta-prompt plain@1 of campaign 'c' cannot"),
    "a proposal cut short": ("UPDATE proposals SET parents = '['", "ticket 0 of campaign 'c' cannot be read"),
    "a proposal's lost parent": ("UPDATE proposals SET parents = '[\"ab\"]'", "refers to candidates 'ab'"),
    "a proposal for no cell": ("UPDATE proposals SET target_cell = '1,'", "ticket 0 of campaign 'c' cannot be read"),
    "a lost campaign": ("DELETE FROM campaigns", "refers to campaigns"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_check_finds_damage(sqlite_store: Store, store_path: Path, name: str) -> None:
    make_campaign(sqlite_store)
    fill(sqlite_store, "c", [kernel("a")])
    sqlite_store.add_meta_prompt("c", MetaPrompt("plain", 1, "cpp", Strategy(), {"Task": "x"}))
    sqlite_store.record_call("c", a_call())
    sqlite_store.issue_ticket("c", a_ticket(1, parents=(kernel("a").id,)))
    statement, expected = DAMAGE[name]
    body = json.dumps(
        {
            "reason": "", "timings": [], "max_error": None, "facts": {}, "flags": [], "seconds": {}, "sandbox": "none",
        }
    )  # fmt: skip
    with closing(sqlite3.connect(store_path)) as raw:
        raw.execute(statement, {"body": body} if ":body" in statement else {})
        raw.commit()
    problems = sqlite_store.check()
    assert any(expected in problem for problem in problems), problems


def test_reading_a_damaged_row_says_which(sqlite_store: Store, store_path: Path) -> None:
    make_campaign(sqlite_store)
    (number,) = sqlite_store.record_outcome("c", 0, kernel(), [an_evaluation(kernel(), Status.WRONG)])
    with closing(sqlite3.connect(store_path)) as raw:
        raw.execute("UPDATE evaluations SET status = 'CORRECT'")
        raw.commit()
    with pytest.raises(StoreError, match=rf"evaluation {number} is damaged.*db check"):
        sqlite_store.evaluations(kind=Kind.TRIAL)


def test_queries_use_their_indices(store_path: Path) -> None:
    """A store of weeks must not be read whole for one candidate or one campaign."""
    queries = {
        "SELECT * FROM evaluations WHERE candidate = 'x' AND params_hash = 'y' ORDER BY id": "candidate_params_hash",
        "SELECT max(ticket) FROM evaluations WHERE campaign = 'c'": "campaign_ticket",
        "SELECT status, count(*) FROM evaluations WHERE campaign = 'c' AND kind = 'trial' GROUP BY status":
            "COVERING INDEX ix_evaluations_campaign_kind_status",
        "SELECT * FROM candidates WHERE id >= 'ab' AND id < 'abg'": "id>? AND id<?",
        "SELECT * FROM parent_edges WHERE child = 'x'": "child=?",
        "SELECT * FROM proposals WHERE campaign = 'c' ORDER BY ticket": "campaign=?",
        "SELECT * FROM llm_calls WHERE campaign = 'c' ORDER BY id": "ix_llm_calls_campaign",
        "SELECT * FROM llm_calls WHERE prompt_hash = 'x' ORDER BY id": "ix_llm_calls_prompt_hash",
        "SELECT max(ticket) FROM tickets WHERE campaign = 'c'": "campaign=?",
        "SELECT * FROM placements WHERE campaign = 'c' ORDER BY id": "ix_placements_campaign",
    }  # fmt: skip
    with closing(sqlite3.connect(store_path)) as raw:
        for query, expected in queries.items():
            plan = " ".join(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {query}"))
            assert expected in plan, (query, plan)
