import pytest

from evoforge.core import (
    Block,
    Candidate,
    Evaluation,
    Signature,
    Status,
    Task,
    TensorSpec,
    Tolerance,
    Workload,
    WorkloadTiming,
)
from evoforge.errors import TaskError


def timing(workload: str, pairs: list[tuple[float, float]], baseline: str = "eager") -> WorkloadTiming:
    blocks = tuple(Block(i, mine, eager_ms=theirs, compiled_ms=2 * theirs) for i, (mine, theirs) in enumerate(pairs))
    return WorkloadTiming(workload, baseline, blocks, bound_ms=0.5)


def evaluation(**changes: object) -> Evaluation:
    fields: dict[str, object] = {
        "candidate": "c", "params": {}, "task": "t", "target": "g", "status": Status.CORRECT,
        "timings": (timing("a", [(1.0, 2.0), (1.0, 4.0), (1.0, 2.0)]), timing("b", [(2.0, 16.0)])),
    }  # fmt: skip
    return Evaluation(**{**fields, **changes})  # type: ignore[arg-type]


def test_speedups_are_geometric_means_of_median_paired_ratios() -> None:
    found = evaluation()
    assert found.speedup() == pytest.approx(4.0)
    assert found.objective == pytest.approx(2.0)
    assert found.speedup("compiled") == pytest.approx(8.0)
    assert found.speedup_best_baseline == pytest.approx(4.0)
    assert found.latency_ms == pytest.approx(2**0.5)
    assert found.roofline_fraction == pytest.approx((0.5 * 0.25) ** 0.5)


def test_the_objective_is_clipped_below() -> None:
    slow = evaluation(timings=(timing("a", [(1e6, 1.0)]),))
    assert slow.objective == -5.0


def test_a_side_that_was_not_timed_is_null() -> None:
    alone = WorkloadTiming("a", "eager", (Block(0, 1.0, eager_ms=2.0),))
    found = evaluation(timings=(alone,))
    assert found.speedup("compiled") is None
    assert found.roofline_fraction is None
    assert found.speedup_best_baseline == pytest.approx(2.0)


def test_the_frozen_side_counts_where_it_was_timed() -> None:
    times = {"candidate": 1.0, "eager": 4.0, "compiled": 3.0, "frozen": 1.5}
    found = evaluation(timings=(WorkloadTiming("a", "compiled", (Block.of(0, times),)),))
    assert found.speedup() == pytest.approx(3.0), "the campaign's baseline"
    assert found.speedup_best_baseline == pytest.approx(1.5)
    assert found.against_fastest().speedup() == pytest.approx(1.5)
    assert found.against_fastest().timings[0].baseline == "frozen"
    assert Block.of(1, {"candidate": 1.0, "compiled": 2.0}) == Block(1, 1.0, compiled_ms=2.0)


def test_hot_and_cold_stand_beside_the_warm_blocks() -> None:
    hot = WorkloadTiming("a", "eager", (Block(0, 1.0, eager_ms=2.0),), hot=(Block(0, 0.5, eager_ms=0.25),))
    found = evaluation(timings=(hot,))
    assert found.speedup() == pytest.approx(2.0)
    at = found.at("hot")
    assert at is not None
    assert (at.speedup(), at.latency_ms) == (pytest.approx(0.5), pytest.approx(0.5))
    assert found.at("cold") is None
    warm = WorkloadTiming("b", "eager", (Block(0, 1.0, eager_ms=2.0),))
    assert evaluation(timings=(hot, warm)).at("hot") is None, "null where a workload has none"
    assert evaluation(status=Status.WRONG, timings=()).at("hot") is None


def test_timings_are_there_exactly_when_correct() -> None:
    with pytest.raises(ValueError, match="must carry timings"):
        evaluation(timings=())
    with pytest.raises(ValueError, match="must not carry timings"):
        evaluation(status=Status.WRONG)


def test_what_is_charged() -> None:
    free = {status for status in Status if not status.charged}
    assert free == {Status.DUPLICATE, Status.INFEASIBLE, Status.SCREENED, Status.HARNESS_ERROR}


def test_a_candidate_is_its_language_and_text() -> None:
    a, b = Candidate("cpp", "int x;", operator="sample"), Candidate("cpp", "int x;", parents=("p",))
    assert a.id == b.id
    assert a.id != Candidate("cuda", "int x;").id


def test_a_task_id_ignores_where_the_file_lies() -> None:
    one = Task("t", "source", (Workload("default"),), path="/a.py")
    assert one.id == Task("u", "source", (Workload("default"),), path="/b.py").id
    assert one.id != Task("t", "source", (Workload("default"),), overrides={"M": 3}).id
    assert one.id != Task("t", "source", (Workload("default"),), Tolerance(factor=64)).id


def test_tolerance_may_only_tighten() -> None:
    with pytest.raises(TaskError, match="may only fall"):
        Tolerance(factor=513)


def test_a_signature_survives_json() -> None:
    spec = TensorSpec("in0", (4, 6), (8, 1), "f32")
    signature = Signature((spec,), (), (TensorSpec("out0", (), (), "i64"),))
    assert Signature.from_json(signature.to_json()) == signature
    assert spec.nbytes == (3 * 8 + 5 + 1) * 4
    assert TensorSpec("e", (0, 3), (3, 1), "f32").nbytes == 0
