"""Records survive their rows, whatever they hold."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evoforge.core import Block, Evaluation, Kind, MetaPrompt, Status, Strategy, Target, Task, Tolerance, Workload
from evoforge.core.evaluation import WorkloadTiming
from evoforge.storage import _records

_TEXT = st.text(max_size=12)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_OBJECT = st.dictionaries(_TEXT, _JSON, max_size=4)
_MS = st.floats(1e-6, 1e6)
_BLOCKS = st.lists(
    st.builds(Block, st.integers(0, 9), _MS, _MS, st.none() | _MS), min_size=1, max_size=4
).map(tuple)  # fmt: skip
_ASIDE = st.just(()) | _BLOCKS
_TIMINGS = st.lists(
    st.builds(WorkloadTiming, _TEXT, st.sampled_from(["eager", "compiled"]), _BLOCKS, st.none() | _MS, _ASIDE, _ASIDE),
    min_size=1,
    max_size=3,
).map(tuple)


@st.composite
def _evaluations(draw: st.DrawFn) -> Evaluation:
    status = draw(st.sampled_from(list(Status)))
    timed = status in (Status.CORRECT, Status.PRUNED, Status.QUARANTINED)
    return Evaluation(
        candidate="c" * 64,
        params=draw(st.dictionaries(_TEXT, st.integers(-(2**40), 2**40), max_size=4)),
        task="t" * 64,
        target="g" * 64,
        status=status,
        kind=draw(st.sampled_from(list(Kind))),
        reason=draw(_TEXT),
        timings=draw(_TIMINGS) if timed else (),
        max_error=draw(st.none() | st.floats(allow_nan=False)),
        facts=draw(_OBJECT),
        cell=draw(st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple)),
        flags=tuple(draw(st.lists(_TEXT, max_size=3))),
        seconds=draw(st.dictionaries(_TEXT, _MS, max_size=3)),
        protocol=draw(st.integers(1, 9)),
        sandbox=draw(_TEXT),
    )


@given(_evaluations())
def test_evaluations(evaluation: Evaluation) -> None:
    row = {"id": 1, **_records.evaluation_to_row("c", 4, evaluation)}
    assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    back = _records.evaluation_from_row(row)
    assert (back.id, back.campaign, back.ticket, back.evaluation) == (1, "c", 4, evaluation)


def test_a_row_from_before_hot_and_cold_loads() -> None:
    timing = WorkloadTiming("default", "eager", (Block(0, 1.0, 2.0, None),), 0.5)
    evaluation = Evaluation("c" * 64, {}, "t" * 64, "g" * 64, Status.CORRECT, timings=(timing,))
    row = {"id": 1, **_records.evaluation_to_row("c", 4, evaluation)}
    old = {"workload": "default", "baseline": "eager", "bound_ms": 0.5, "blocks": [[0, 1.0, 2.0, None]]}
    assert json.loads(row["body"])["timings"] == [old], "and without them a row is written as it was"
    back = _records.evaluation_from_row(row).evaluation
    assert back == evaluation
    assert (back.timings[0].hot, back.at("cold")) == ((), None)


@given(st.dictionaries(_TEXT, st.integers(), max_size=4), st.randoms(use_true_random=False))
def test_params_hash_ignores_the_order_only(params: dict[str, int], random: Any) -> None:
    items = list(params.items())
    random.shuffle(items)
    assert _records.params_hash(dict(items)) == _records.params_hash(params)
    assert _records.params_hash({**params, "extra name": 1}) != _records.params_hash(params)
    for name in params:
        assert _records.params_hash({**params, name: params[name] + 1}) != _records.params_hash(params)


@given(
    st.builds(
        Task,
        name=_TEXT,
        source=_TEXT,
        workloads=st.lists(st.builds(Workload, _TEXT, _OBJECT), max_size=3).map(tuple),
        tolerance=st.builds(
            Tolerance, st.sampled_from(["ieee", "tf32"]), st.sampled_from(["match", "forbid"]), st.floats(1, 512)
        ),
        overrides=_OBJECT,
        path=st.none() | _TEXT,
        entry=st.none() | _TEXT,
        root=st.none() | _TEXT,
        imported_source=_TEXT,
    )
)
def test_tasks(task: Task) -> None:
    back = _records.task_from_json(json.loads(json.dumps(_records.task_to_json(task))))
    assert back == task and back.id == task.id


@given(st.builds(Target, _TEXT, _TEXT, st.integers(1, 64), _TEXT, _OBJECT, st.dictionaries(_TEXT, st.floats(0, 1e15))))
def test_targets(target: Target) -> None:
    back = _records.target_from_json(json.loads(json.dumps(_records.target_to_json(target))))
    assert back == target and back.id == target.id


def test_what_json_does_not_know_keeps_the_id() -> None:
    odd = Target("cpu", "cpu", 1, "x", {"set": frozenset({1}), "shape": (1, 2), "z": 1 + 2j})
    assert _records.target_from_json(_records.target_to_json(odd)).id == odd.id
    task = Task("t", "s", (Workload("w", {"B": b"x"}),), overrides={"T": (1, 2j)})
    assert _records.task_from_json(_records.task_to_json(task)).id == task.id


@given(
    st.builds(
        MetaPrompt,
        _TEXT,
        st.integers(0, 99),
        _TEXT,
        st.builds(Strategy, *[st.dictionaries(_TEXT, st.floats(0, math.inf), max_size=3)] * 3),
        st.dictionaries(_TEXT, _TEXT, max_size=4),
        st.lists(_TEXT, max_size=2).map(tuple),
    ),
    st.lists(_TEXT, max_size=2).map(tuple),
)
def test_meta_prompts(prompt: MetaPrompt, displaced: tuple[str, ...]) -> None:
    row = _records.meta_prompt_from_row(_records.meta_prompt_to_row("c", prompt, displaced))
    back = row.meta_prompt
    assert back == prompt and list(back.sections) == list(prompt.sections) and row.displaced == displaced
