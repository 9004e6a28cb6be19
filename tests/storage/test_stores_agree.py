"""Whatever is done to them, the stores answer alike, so that tests on the one speak for the other."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evoforge.core import Kind, MetaPrompt, Status, Strategy
from evoforge.errors import EvoforgeError
from evoforge.storage import Store, open_store
from evoforge.testing.store_suite import a_call, a_ticket, an_evaluation, kernel, make_campaign, placed, target, task

_NAMES = st.sampled_from(["c", "c-1", "d"])
_KERNELS = st.builds(
    lambda text, parents: kernel(text, parents=tuple(kernel(name).id for name in parents)),
    st.sampled_from("pqr"),
    st.lists(st.sampled_from("pq"), max_size=2),
)
_EVALUATIONS = st.builds(
    lambda text, status, kind, size: an_evaluation(
        kernel(text), status, kind=kind, params={"T": size}, seconds={str(kind): size / 3}
    ),
    st.sampled_from("pqr"),
    st.sampled_from([Status.CORRECT, Status.WRONG]),
    st.sampled_from(list(Kind)),
    st.sampled_from([4, 8]),
)
_PLACEMENTS = st.builds(
    lambda text, action: placed(kernel(text), action=action),
    st.sampled_from("pqr"),
    st.sampled_from(["NEW", "REJECTED", "DEMOTED"]),
)
_STEPS = st.one_of(
    st.tuples(st.just("create"), _NAMES, st.sampled_from(["x", "y"])),
    st.tuples(st.just("delete"), _NAMES),
    st.tuples(st.just("call"), _NAMES, st.sampled_from("xy")),
    st.tuples(st.just("issue"), _NAMES, st.integers(0, 3), st.sampled_from("pqr")),
    st.tuples(st.just("settle"), _NAMES, st.integers(0, 3), st.sampled_from(["answered", "expired"])),
    st.tuples(st.just("prompt"), _NAMES, st.sampled_from(["x", "y"])),
    *[
        st.tuples(
            st.just("record"),
            _NAMES,
            st.none() | st.integers(0, 3),
            st.none() | _KERNELS,
            st.lists(_EVALUATIONS, max_size=2),
            st.lists(_PLACEMENTS, max_size=1),
        )
    ]
    * 4,  # most of what happens
)


def act(store: Store, step: tuple[Any, ...]) -> str:
    """Does one step; the kind of error it met."""
    what, name, *rest = step
    try:
        if what == "create":
            make_campaign(store, name, task=task(source=rest[0]))
            make_campaign(store, None, task=replace(task(), name=name))  # the task that evaluations name
        elif what == "delete":
            store.delete_campaign(name)
        elif what == "prompt":
            store.add_meta_prompt(name, MetaPrompt("plain", 1, "cpp", Strategy(), {"Task": rest[0]}))
        elif what == "call":
            store.record_call(name, a_call(rest[0]))
        elif what == "issue":
            store.issue_ticket(name, a_ticket(rest[0], name, parents=(kernel(rest[1]).id,)))
        elif what == "settle":
            return str(store.settle_ticket(name, *rest))
        else:
            store.record_outcome(name, *rest)
    except EvoforgeError as error:
        return type(error).__name__
    return ""


def view(store: Store) -> Any:
    """All that a store says, row ids and times aside."""
    numbers = {row.id: index for index, row in enumerate(store.evaluations())}
    names = [row.name for row in store.campaigns()]
    return [
        [(row.name, row.task.id) for row in store.campaigns()],
        sorted(found.id for found in store.tasks()),
        [found.id for found in store.targets()],
        [(row.campaign, row.ticket, row.evaluation) for row in store.evaluations()],
        [(name, store.counts(name), store.last_ticket(name)) for name in names],
        [[(row.ticket, row.candidate, row.parents) for row in store.proposals(name)] for name in names],
        [store.candidates(name) for name in names],
        [[(row.ticket, row.evaluation) for row in store.claims(name)[0]] for name in names],
        [sorted(one.id for one in store.claims(name)[1]) for name in names],
        [[(row.ticket, row.evaluation) for row in store.last_trials(name)] for name in names],
        [[(p.ticket, p.placement.action, numbers[p.placement.evaluation or 0]) for p in store.placements(name)]
         for name in names],
        [[row.meta_prompt for row in store.meta_prompts(name)] for name in names],
        [([row.call for row in store.calls(name)], store.tickets(name)) for name in names],
        [([row.call for row in store.calls(name, texts=False)], store.seconds(name)) for name in names],
        [[row.campaign for row in store.find_call(text * 64)] for text in "xy"],
        [store.lineage(kernel(text).id) for text in "pqr"],
        [len(store.find_recorded(kernel(t).id, {"T": 4}, task().id, target().id, 1, Kind.CONFIRM)) for t in "pqr"],
    ]  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_STEPS, min_size=3, max_size=14))
def test_the_same_steps_leave_the_same_rows(store_path: Path, steps: list[tuple[Any, ...]]) -> None:
    path = shutil.copy(store_path, store_path.with_name("again.db"))
    with open_store(f"sqlite:///{path}") as sql, open_store("memory://") as memory:
        for step in [("create", "c", "x"), *steps]:
            assert act(sql, step) == act(memory, step), step
        assert view(sql) == view(memory)
        assert sql.check() == memory.check() == []
