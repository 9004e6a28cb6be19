"""Which input sets a task is judged on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from evoforge.core import Tolerance
from evoforge.evaluation import material as material_module
from evoforge.evaluation.check import check_outputs
from evoforge.evaluation.material import Material, draw_extremes, draw_known, draw_touched, draw_unseen, make_material
from evoforge.evaluation.shared import SharedTensors
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.worker import EXTREMES, SURE_EXTREMES, ReferenceWorker

TASK = """\
import torch
MODE = "relu"
WORKLOADS = [{"name": "relu"}, {"name": "ratio", "MODE": "ratio"}, {"name": "whole", "MODE": "whole"},
             {"name": "place", "MODE": "place"}, {"name": "centred", "MODE": "centred"},
             {"name": "ordered", "MODE": "ordered"}, {"name": "sorted", "MODE": "sorted"},
             {"name": "softmax", "MODE": "softmax"}, {"name": "quantised", "MODE": "quantised"},
             {"name": "log", "MODE": "log"}, {"name": "odds", "MODE": "odds"},
             {"name": "bounds", "MODE": "bounds"}, {"name": "scaled", "MODE": "scaled"},
             {"name": "between", "MODE": "between"}, {"name": "best", "MODE": "best"},
             {"name": "layers", "MODE": "layers"}, {"name": "both", "MODE": "both"},
             {"name": "masked", "MODE": "masked"}]


torch.manual_seed(1)
FIRST = torch.randn(256, 256) / 16


def Model(x, bounds=None):
    if MODE == "bounds":
        return (x[..., None] > bounds).sum(-1) + torch.relu(x)
    if MODE == "scaled":
        return x * bounds
    if MODE == "masked":
        return torch.where(bounds, x, -x)
    if MODE == "ratio":
        return x * ((x * x) * (x * x)) / ((x * x) * (x * x))
    if MODE == "place":
        return x.argmax(-1)
    if MODE == "centred":
        return (x + 0.3) - (x + 0.3).mean(-1, keepdim=True)
    if MODE == "ordered":
        return x.flip(-1).gather(-1, x.argsort(-1))
    if MODE == "sorted":
        return x.sort(-1).values
    if MODE == "softmax":
        return x.softmax(-1)
    if MODE == "quantised":
        return torch.clamp(torch.round(x / 0.05), -128, 127) * 0.05
    if MODE == "between":
        weights = FIRST.to(x.dtype)
        return torch.clamp(torch.round(x @ weights * 128), -1024, 1023) / 128 @ weights
    if MODE == "layers":
        weights = FIRST.to(x.dtype)
        return torch.nn.functional.gelu(x @ weights + weights[0]) @ weights + weights[1]
    if MODE == "both":
        return x * 2, (x + 0.3) - (x + 0.3).mean(-1, keepdim=True)
    if MODE == "best":
        return x.topk(4).indices
    if MODE == "log":
        return torch.log(x)
    if MODE == "odds":
        return torch.logit(x)
    return torch.relu(x) if MODE == "relu" else x + 1


def get_inputs():
    if MODE == "bounds":
        return [torch.randn(64, 256), torch.randn(40).sort().values]
    if MODE == "scaled":
        return [torch.randn(64, 256), torch.ones(256)]
    if MODE == "masked":
        return [torch.randn(64, 256), torch.ones(64, 256, dtype=torch.bool)]
    if MODE in ("log", "odds"):
        return [torch.rand(64, 256) * (0.9 if MODE == "odds" else 9) + 0.05]
    return [torch.arange(64) if MODE == "whole" else torch.randn(64, 1000 if MODE in ("centred", "both") else 256)]
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceWorker]:
    path: Path = tmp_path_factory.mktemp("tasks") / "modes.py"
    path.write_text(TASK)
    with ReferenceWorker(load_task(str(path))) as worker:
        yield worker


def material_of(worker: ReferenceWorker, name: str) -> Material:
    return make_material(worker, name, worker.describe()[name], np.random.default_rng(0), l2_total_bytes=1 << 16)


def test_extremes_are_drawn_once_and_hold_what_they_say(worker: ReferenceWorker) -> None:
    material = material_of(worker, "relu")
    sets = draw_extremes(worker, material, Tolerance(nonfinite="match"), np.random.default_rng(1))
    assert draw_extremes(worker, material, Tolerance(nonfinite="match"), np.random.default_rng(2)) is sets
    values = {known.family: known.inputs.array(0) for known in sets}
    assert [known.family for known in sets] == [
        "alike",
        "halves",
        *EXTREMES,
        "mixed",
        "mixed",
    ] and material.dropped == ()
    first, second = (known.inputs.array(0) for known in material.pool)
    changed = values["alike"] != first
    assert 0.1 < changed.mean() < 0.15 and np.ptp(np.flatnonzero(changed)) < changed.size / 8
    assert (values["alike"] == np.where(changed, second, first)).all()
    eighth, few = (known.inputs.array(0) for known in sets if known.family == "mixed")
    changed = eighth != first
    others = (values[name] for name in ("raised", "offset", "outliers"))
    assert any((eighth == np.where(changed, one, first)).all() for one in others)
    assert changed.any() and np.ptp(np.flatnonzero(changed)) < changed.size / 8
    changed = few != first
    assert (few == np.where(changed, values["raised"], first)).all(), "beyond what an exponential bears"
    assert 0 < changed.sum() <= 8 and np.ptp(np.flatnonzero(changed)) > changed.size / 8, "a glance at some misses them"
    tiny = np.finfo(np.float32).tiny
    assert (np.abs(values["large"]) > 1e8).mean() > 0.9
    assert ((np.abs(values["tiny"]) > tiny) & (np.abs(values["tiny"]) < 1e-26)).all()
    assert ((values["offset"] < 0).all(axis=1) | (values["offset"] > 0).all(axis=1)).mean() > 0.3
    assert (values["sunk"] < -50).all() and np.ptp(values["sunk"]) < 20, "one sign, about one number"
    assert (values["raised"] > 4000).all() and np.ptp(values["raised"]) < 20
    assert 2**-10.1 < values["small"].std() < 2**-5.9
    unit = np.log2(np.abs(values["unit"]))
    assert unit.min() > -0.13 and unit.max() < 0.13 and 0.4 < (values["unit"] < 0).mean() < 0.6
    ends = values["ends"]
    rest = np.abs(ends[:-1, :-1]).max()
    assert ends[-1, -1] == np.abs(ends).max(), "the last of all is the largest"
    for last in (ends[:-1, -1], ends[-1, :-1]):
        assert np.abs(last).min() > 4 * rest and (last > 0).any() and (last < 0).any()
    far = np.abs(values["outliers"]) > 6
    assert 0 < far.mean() < 0.02 and not far.all(axis=1).any()
    zeros = values["zeros"][values["zeros"] == 0]
    assert 0.4 < zeros.size / values["zeros"].size < 0.6 and 0.4 < np.signbit(zeros).mean() < 0.6
    for one in (values["zeros"], -values["zeros"]):
        assert ((one <= 0).all(axis=1) & (one == 0).any(axis=1)).mean() > 0.1, "both zeros are the largest"
    assert 0 < np.isinf(values["infinite"]).sum() < 100 and 0 < np.isnan(values["infinite"]).sum() < 50
    infinite = next(known for known in sets if known.family == "infinite")
    outputs = worker.outputs("relu", infinite.inputs)
    assert check_outputs(outputs, infinite.reference, Tolerance(nonfinite="match")).passed
    outputs.array(0)[np.isinf(outputs.array(0))] = np.finfo(np.float32).max
    assert not check_outputs(outputs, infinite.reference, Tolerance(nonfinite="match")).passed
    material.close()


def test_bools_that_are_given_come_with_one_in_eight_turned(worker: ReferenceWorker) -> None:
    material = material_of(worker, "masked")
    sets = {known.family: known for known in draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))}
    x, mask = (sets["masks"].inputs.array(at) for at in range(2))
    assert 0.1 < 1 - mask.mean() < 0.15
    assert (sets["masks"].reference.y64.array(0) == np.where(mask, x, -x)).all()
    assert all(known.inputs.array(1).all() for family, known in sets.items() if family != "masks")
    material.close()


def test_extremes_that_the_task_itself_cannot_bear_stay_within_its_own_numbers(worker: ReferenceWorker) -> None:
    material = material_of(worker, "ratio")
    sets = draw_extremes(worker, material, Tolerance(nonfinite="match"), np.random.default_rng(1))
    # ∞/∞ is NaN in both precisions, and NaN in its place is an answer. Tiny ones would be one number there.
    assert material.dropped == ("tiny",) and [known.family for known in sets] == [
        "alike", "halves (inside)", "offset", "ends", "sunk", "outliers", "large (inside)", "small", "raised", "unit",
        "zeros (inside)", "infinite", "mixed", "mixed",
    ]  # fmt: skip
    material.close()


@pytest.mark.parametrize("name", ["softmax", "quantised", "best", "layers"])
def test_extremes_that_move_no_output_are_judged_where_rounding_does_not_either(
    worker: ReferenceWorker, name: str
) -> None:
    """A saturated softmax, a clamped code, an index: no input's last bit moves them, and their answers are clear."""
    material = material_of(worker, name)
    families = [known.family for known in draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))]
    extremes = [family for family in families if family != "mixed"]
    finite = [one for one in EXTREMES if one != "infinite"]
    assert extremes[-len(finite) :] == finite and not material.dropped
    assert families[-1] == "mixed"
    material.close()


def test_extremes_that_only_rounding_moves_are_not_judged(worker: ReferenceWorker) -> None:
    """Beside 0.3 nothing is left of tiny inputs: what remains is how exact a mean of equal numbers happens to be."""
    for name in ("centred", "both"):
        material = material_of(worker, name)
        families = [known.family for known in draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))]
        borne = [one for one in EXTREMES if one not in ("tiny", "infinite")]
        # Of small ones only what lies within a part of the numbers, where the outputs are not only what rounding left.
        assert [family.partition(" (")[0] for family in families] == ["alike", "halves", *borne, "mixed", "mixed"]
        assert [family for family in families if family.startswith("small")] != ["small"]
        material.close()


def test_extremes_with_equal_values_are_dropped_where_their_order_decides(worker: ReferenceWorker) -> None:
    """And torch does not say which of them comes first."""
    for name, zeros in (("ordered", False), ("sorted", True)):
        material = material_of(worker, name)
        families = [known.family for known in draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))]
        assert ("zeros" in families) == zeros and "outliers" in families
        material.close()


@pytest.mark.parametrize(("name", "least", "most"), [("log", 0, 1e30), ("odds", 0, 0.951)])
def test_a_task_of_a_domain_is_judged_within_it(worker: ReferenceWorker, name: str, least: float, most: float) -> None:
    material = material_of(worker, name)
    drawn = draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))
    sets = {known.family.partition(" ")[0]: known.inputs.array(0) for known in drawn}
    assert set(sets) == {"alike", "halves", "mixed", *EXTREMES} - {"infinite"} and not material.dropped
    assert all((least <= values).all() and (values <= most).all() for values in sets.values())
    material.close()


def test_what_is_only_timed_looks_like_what_is_verified(worker: ReferenceWorker) -> None:
    material = material_of(worker, "whole")
    for inputs in material.ring:
        begin = inputs.segments[0].data - inputs.segments[0].start
        assert inputs.bytes_of(0)[begin - 64 : begin].all(), "around a verified set there are no zeros"
    material.close()


def test_of_a_large_task_a_few_extremes_are_drawn(worker: ReferenceWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material_module, "_POOL_BYTES", 1)
    drawn = set()
    for seed in range(3):
        material = material_of(worker, "relu")
        families = [one.family for one in draw_extremes(worker, material, Tolerance(), np.random.default_rng(seed))]
        assert len(families) == 5
        assert set(SURE_EXTREMES) <= set(families), "those that admission relies on"
        drawn.update(families)
        material.close()
    assert len(drawn) > 5, "whichever"
    monkeypatch.setattr(material_module, "available_bytes", lambda: 0)
    material = material_of(worker, "relu")
    drawn_last = draw_extremes(worker, material, Tolerance(), np.random.default_rng(0))
    assert tuple(one.family for one in drawn_last) == SURE_EXTREMES, "whatever memory there is"
    material.close()


def test_a_code_at_an_edge_may_be_its_neighbour(worker: ReferenceWorker) -> None:
    """Where a rounding stands between two layers, one code more makes a whole row another; too few digits make all."""
    material = material_of(worker, "between")
    weights = worker.constants("between").array(0)
    outliers = [draw_known(worker, "between", np.random.default_rng(seed), "outliers") for seed in range(8)]
    for known in (*material.pool, *draw_extremes(worker, material, Tolerance(), np.random.default_rng(1)), *outliers):
        for digits, passes in ((0, True), (16, False)):
            x, w = (_without(array, digits) for array in (known.inputs.array(0), weights))
            codes = _summed_in_order(x, w) * np.float32(128)
            outputs = SharedTensors(known.reference.y64.specs)
            outputs.array(0)[...] = _summed_in_order(np.clip(np.rint(codes), -1024, 1023) / np.float32(128), w)
            found = check_outputs(outputs, known.reference, Tolerance())
            assert found.passed == (passes or known.family == "tiny"), (known.family, digits, found.reason)
            outputs.close()
    material.close()


def _without(array: npt.NDArray[np.float32], digits: int) -> npt.NDArray[np.float32]:
    """The numbers without the last of their binary digits, of 24."""
    return (array.view(np.uint32) >> digits << digits).view(np.float32)


def _summed_in_order(x: npt.NDArray[np.float32], weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The product as a plain kernel computes it: one term after the other."""
    total = np.zeros((len(x), weights.shape[1]), np.float32)
    for k in range(len(weights)):
        total += x[:, k : k + 1] * weights[k]
    return total


def test_integers_have_no_extremes(worker: ReferenceWorker) -> None:
    """Nor a piece of other ones: they may be a permutation, or in order."""
    material = material_of(worker, "whole")
    assert draw_extremes(worker, material, Tolerance(nonfinite="match"), np.random.default_rng(1)) == ()
    material.close()


def test_bounds_to_search_among_stay_sorted(worker: ReferenceWorker) -> None:
    material = material_of(worker, "bounds")
    sets = draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))
    assert {"alike", "offset", "mixed"} <= {known.family.partition(" ")[0] for known in sets}
    for known in (*material.pool, *sets):
        bounds = known.inputs.array(1)
        assert (bounds[1:] >= bounds[:-1]).all(), known.family
    material.close()


def test_an_input_that_is_one_number_is_in_no_order(worker: ReferenceWorker) -> None:
    """As scales of 1 and initial states of 0 are: who looks at the ends of it knows nothing of the rest."""
    material = material_of(worker, "scaled")
    extremes = draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))
    sets = {known.family: known.inputs for known in extremes}
    for family in ("halves", "offset", "outliers", "large"):
        scale = sets[family].array(1)
        assert (scale[1:] < scale[:-1]).any(), family
    scale = sets["outliers"].array(1)
    assert 0.9 < (scale == 1).mean() < 1
    assert (sets["alike"].array(0) != material.pool[0].inputs.array(0)).any(), "what no draw changes is not mixed"
    material.close()


def test_an_index_is_judged_where_values_are_equal(worker: ReferenceWorker) -> None:
    material = material_of(worker, "place")
    sets = draw_extremes(worker, material, Tolerance(), np.random.default_rng(1))
    ties = next(known for known in sets if known.family == "halves")
    inputs = ties.inputs.array(0)
    assert (ties.reference.y64.array(0) == inputs.argmax(-1)).all(), "the first of them"
    assert (inputs == inputs.max(-1, keepdims=True)).sum(-1).max() > 1
    material.close()


WEIGHTS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 96)
        self.second = nn.Linear(96, 32)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
"""


def test_an_element_of_one_weight_is_another(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(WEIGHTS)
    with ReferenceWorker(load_task(str(tmp_path / "layers.py"))) as worker:
        material = make_material(
            worker, "default", worker.describe()["default"], np.random.default_rng(0), l2_total_bytes=1 << 16
        )
        known = draw_touched(worker, material, Tolerance(), np.random.default_rng(1))
        assert known is not None and known.constants is not None and material.constants is not None
        assert draw_touched(worker, material, Tolerance(), np.random.default_rng(2)) is known, "drawn once"
        pairs = list(zip(material.constants.arrays(), known.constants.arrays(), strict=True))
        (own, other), *others = sorted(pairs, key=lambda pair: np.array_equal(*pair))
        assert all(np.array_equal(*pair) for pair in others)
        changed = np.flatnonzero(own != other)
        assert changed.size == 1
        first, bias, second, shift = (one.astype(np.float64) for one in known.constants.arrays())
        hidden = np.maximum(known.inputs.array(0).astype(np.float64) @ first.T + bias, 0)
        np.testing.assert_allclose(known.reference.y64.array(0), hidden @ second.T + shift, rtol=1e-9, atol=1e-12)
        material.close()


LOOKUP = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4096, 8))

    def forward(self, rows):
        return self.table[rows]


def get_inputs():
    return [torch.randint(4096, (256,))]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("seed", range(4))
def test_as_many_elements_of_a_weight_are_others_as_are_seen(tmp_path: Path, seed: int) -> None:
    """Of one row in sixteen the outputs tell: one element more or less would tell nothing of a kernel."""
    (tmp_path / "lookup.py").write_text(LOOKUP)
    with ReferenceWorker(load_task(str(tmp_path / "lookup.py"))) as worker:
        material = material_of(worker, "default")
        known = draw_touched(worker, material, Tolerance(), np.random.default_rng(seed))
        assert known is not None and known.constants is not None and material.constants is not None
        changed = np.argwhere(known.constants.array(0) != material.constants.array(0))
        assert 0 < len(changed) <= 64 and len(np.unique(changed[:, 0])) > len(changed) // 2, "anywhere"
        outputs = worker.outputs("default", known.inputs)
        assert not check_outputs(outputs, known.reference, Tolerance()).passed
        outputs.close()
        material.close()


GAINS = """
import torch
from torch import nn

ROOTED = False
WORKLOADS = [{"name": "gains"}, {"name": "rooted", "ROOTED": True}]


class Model(nn.Module):
    def __init__(self, rooted):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(256))
        self.rooted = rooted

    def forward(self, x):
        return x * torch.sqrt(self.gain) if self.rooted else x * self.gain


def get_inputs():
    return [torch.randn(16, 256)]


def get_init_inputs():
    return [ROOTED]
"""


@pytest.mark.parametrize(("name", "signs"), [("gains", {-1.0, 1.0}), ("rooted", {1.0})])
def test_unseen_weights_have_both_signs_where_the_task_bears_it(tmp_path: Path, name: str, signs: set[float]) -> None:
    (tmp_path / "gains.py").write_text(GAINS)
    with ReferenceWorker(load_task(str(tmp_path / "gains.py"))) as worker:
        material = material_of(worker, name)
        for seed in range(5):
            known = draw_unseen(worker, material, Tolerance(), np.random.default_rng(seed))
            assert known.constants is not None
            gains = known.constants.array(0)
            assert set(np.sign(gains)) == signs and (np.abs(gains).max() > 3) == (len(signs) == 2)
            known.close()
        material.close()


def test_a_task_without_weights_has_none_to_touch(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(
        "import torch\n\n\ndef Model(x):\n    return x * 2\n\n\ndef get_inputs():\n    return [torch.randn(16, 256)]\n"
    )
    with ReferenceWorker(load_task(str(tmp_path / "double.py"))) as worker:
        material = material_of(worker, "default")
        assert draw_touched(worker, material, Tolerance(), np.random.default_rng(1)) is None
        material.close()
