"""What one evaluation costs, stage by stage: new kernels, duplicates and what the screen refuses.

    python benchmarks/stages.py [--count 40] [--rows FILE]

New kernels are honest schedules of a small softmax, each built anew; their time runs from the text to
the quick time. A duplicate has other names and comments. What the screen costs
beyond the build is taken on the honest kernel's text and object; with a forbidden call beside it the same kernel
must be refused. Exits 1 if a promise is missed: medians of 0.6 s, 5 ms and 20 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from evoforge.campaign._prepare import Ground
from evoforge.campaign._setup import analyse
from evoforge.core import Candidate, Status, Strategy
from evoforge.emitters.novelty import NoveltyGate
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.screen import screen_object, screen_source
from evoforge.evaluation.targets import resolve_target
from evoforge.evaluation.tasks import load_task
from evoforge.lowering.space import ScheduleSpace

NEW_S, DUPLICATE_S, SCREEN_S = 0.6, 5e-3, 20e-3
_TASK = Path(__file__).resolve().parent.parent / "experiments" / "tasks" / "softmax.py"
_SIZES = {"M": 256, "N": 512}
_FORBIDDEN = '\n#include <cstdlib>\nextern "C" const char* beside(void) { return getenv("HOME"); }\n'


def draw(space: ScheduleSpace, count: int, gate: NoveltyGate) -> list[Candidate]:
    """Random kernels, no two of which are the same."""
    rng = np.random.default_rng(0)
    found: list[Candidate] = []
    while len(found) < count:
        candidate = Candidate("cpp", space.render(space.sample(rng, Strategy())))
        if gate.twin(candidate) is None:
            gate.add(candidate)
            found.append(candidate)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rows", type=Path, help="append one JSON line per kernel")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["EVOFORGE_CACHE"] = cache
        rows = measure(asked.count)
    if asked.rows:
        with asked.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return report(rows)


def measure(count: int) -> list[dict[str, float]]:
    """Seconds of every kernel: ``whole`` and its stages, ``duplicate`` and ``screen``."""
    task, target = load_task(str(_TASK), overrides=_SIZES), resolve_target("cpu")
    rows, gate = [], NoveltyGate()
    with Judge(task, target, seed=0) as judge:
        judge.open()
        setup = analyse(judge, task, target)
        judge.set_context(setup.trace_signatures, setup.unfused)
        space = Ground.of(setup, target, task.tolerance, reachable=()).space
        assert space is not None
        kernels = draw(space, count + 1, gate)
        judge.trial(kernels[0], {}, wanted_facts=False)  # the precompiled header is built
        for candidate in kernels[1:]:
            began = time.perf_counter()
            evaluation = judge.trial(candidate, {}, wanted_facts=False)
            row = {"whole": time.perf_counter() - began, **evaluation.seconds}
            assert evaluation.status is Status.CORRECT, evaluation.reason
            again = Candidate("cpp", "// again\n" + re.sub(r"\brow\b", "line", candidate.source))
            began = time.perf_counter()
            assert gate.twin(again) is not None
            row["duplicate"] = time.perf_counter() - began
            refused = judge.verify(Candidate("cpp", candidate.source + _FORBIDDEN), {})
            assert refused.status is Status.SCREENED, refused.reason
            built = judge.build(candidate, {})["default"]
            assert built.object_path is not None
            began = time.perf_counter()
            assert screen_source(candidate.source) is None
            assert screen_object(built.object_path) is None
            row["screen"] = time.perf_counter() - began
            rows.append(row)
    return rows


def report(rows: list[dict[str, float]]) -> int:
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    stages = ", ".join(
        f"{name} {medians[name]:.3f}" for name in rows[0] if name not in ("whole", "duplicate", "screen")
    )
    print(f"{len(rows)} new kernels: median {medians['whole']:.3f} s ({stages})")
    print(f"a duplicate: {1000 * medians['duplicate']:.1f} ms; the screen: ", end="")
    print(f"{1000 * medians['screen']:.1f} ms")
    return int(medians["whole"] > NEW_S or medians["duplicate"] > DUPLICATE_S or medians["screen"] > SCREEN_S)


if __name__ == "__main__":
    raise SystemExit(main())
