"""What one evaluation costs, stage by stage: new kernels, duplicates and what the screen refuses.

    python benchmarks/stages.py [--count 40] [--rows FILE]

New kernels are honest schedules of a small softmax, each built anew; their time runs from the text to
the quick time. A duplicate has other names and comments. What the object's screen refuses is an honest
kernel with one forbidden call beside it, against the same kernel without. Exits 1 if a promise is missed:
a median of 0.6 s, 5 ms, and 20 ms beyond the build.
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

from evoforge.campaign._setup import analyse
from evoforge.core import Candidate, Status, Strategy
from evoforge.emitters.novelty import NoveltyGate
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.targets import resolve_target
from evoforge.evaluation.tasks import load_task
from evoforge.lowering.space import ScheduleSpace

NEW_S, DUPLICATE_S, SCREEN_S = 0.6, 5e-3, 20e-3
_TASK = Path(__file__).resolve().parent.parent / "experiments" / "tasks" / "softmax.py"
_SIZES = {"M": 256, "N": 512}
_FORBIDDEN = '\n#include <cstdlib>\nextern "C" const char* beside(void) { return getenv("HOME"); }\n'


def draw(space: ScheduleSpace, count: int, gate: NoveltyGate) -> list[Candidate]:
    """Random kernels, no two of which are the same."""
    rng, found = np.random.default_rng(0), []
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
    """Seconds of every kernel: ``whole`` and its stages, ``duplicate``, and ``screen``, the refused build's surplus."""
    task, target = load_task(str(_TASK), overrides=_SIZES), resolve_target("cpu")
    rows, gate = [], NoveltyGate()
    with Judge(task, target, seed=0) as judge:
        judge.open()
        setup = analyse(judge, task, target)
        judge.set_context(setup.trace_signatures, setup.unfused)
        space = ScheduleSpace(
            list(setup.graphs.values()), l1_bytes=target.l1_bytes, l2_bytes=target.l2_bytes,
            vector_bytes=target.vector_bytes, threads=target.threads,
        )  # fmt: skip
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
            # Alternately first: what comes second finds the compiler's files at hand.
            refused = Candidate("cpp", candidate.source + _FORBIDDEN)
            honest = Candidate("cpp", candidate.source + _FORBIDDEN.replace('getenv("HOME")', '"HOME"'))
            seconds = {}
            for one in (refused, honest) if len(rows) % 2 else (honest, refused):
                began = time.perf_counter()
                status = judge.verify(one, {}).status if one is refused else judge.build(one, {})["default"].status
                seconds[one.id] = time.perf_counter() - began
                assert status is (Status.SCREENED if one is refused else Status.CORRECT)
            row["screen"] = seconds[refused.id] - seconds[honest.id]
            rows.append(row)
    return rows


def report(rows: list[dict[str, float]]) -> int:
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    stages = ", ".join(
        f"{name} {medians[name]:.3f}" for name in rows[0] if name not in ("whole", "duplicate", "screen")
    )
    print(f"{len(rows)} new kernels: median {medians['whole']:.3f} s ({stages})")
    print(f"a duplicate: {1000 * medians['duplicate']:.1f} ms; a screen's reject beyond its build: ", end="")
    print(f"{1000 * medians['screen']:.1f} ms")
    return int(medians["whole"] > NEW_S or medians["duplicate"] > DUPLICATE_S or medians["screen"] > SCREEN_S)


if __name__ == "__main__":
    raise SystemExit(main())
