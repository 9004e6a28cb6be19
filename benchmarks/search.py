"""Does the search beat random sampling of its own space, and Optuna alone on one flat space?

    python benchmarks/search.py -o rows.jsonl --folder DIR [--task softmax] [--seeds 10-19] [--evals 60]

Real campaigns of the generator on this CPU, without a model, on small tasks. Arms with equal evaluations, Optuna's
trials counted: ``evolved`` is evoforge as it comes, ``random`` draws schedules as the space does for a first
generation and parameters evenly, ``optuna`` is TPE over genes and parameters in one flat space. All arms of a task
replay one record in DIR, to which what is measured is added (`coevolution.py kernels` can share DIR and rows).

Rows are appended as they come, seed after seed; a second call goes on where the first stopped. Prints the area under
the QD score per evaluation, and how many times faster the best elite is than a control's of the same seed, both
measured afresh and in turns (log2; speed-ups over the baseline stand beside it, each of its own minute), with paired
bootstrap 95% intervals, over the seeds that all tasks have. Exits 1 unless all seeds are there and both are better than
either control on all tasks together, and on none surely worse. Needs a quiet machine: no two of these side by side.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from recorded_campaigns import TASKS, Measured, difference_interval, seeds

ARMS = ("evolved", "random", "optuna")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the records, one store per task")
    parser.add_argument("--task", action="append", default=[], choices=sorted(TASKS), help="only this; repeatable")
    parser.add_argument("--seeds", type=seeds, default=seeds("10-19"))
    parser.add_argument("--evals", type=int, default=60, help="of every campaign")
    parser.add_argument("--minutes", type=float, help="begin no campaign after so many; a further call goes on")
    options = parser.parse_args()
    rows = Measured(options.output, options.folder, options.evals, options.minutes)
    tasks = options.task or sorted(TASKS)
    done: list[int] = []
    for seed in options.seeds:
        if not all(rows.fill(task, [(arm, seed) for arm in ARMS]) for task in tasks):
            break
        for task in tasks:
            rows.duel(task, seed, ARMS[0], ARMS[1:])
        done.append(seed)
    if not done:
        return 1
    print(f"{len(done)} of {len(options.seeds)} seeds")

    def auc(task: str, arm: str) -> list[float]:
        return [area / options.evals for area in rows.scores(task, arm, done, "qd_auc")]

    def fresh(task: str, arm: str) -> float:
        return float(np.exp2(np.mean(rows.scores(task, arm, done, "fresh"))))

    sooner = _compared(
        "QD score, mean over the evaluations", tasks,
        lambda task, arm: [a - b for a, b in zip(auc(task, ARMS[0]), auc(task, arm), strict=True)],
        lambda task: ", ".join(f"{arm} {np.mean(auc(task, arm)):.1f}" for arm in ARMS),
    )  # fmt: skip
    better = _compared(
        "the best kernel beside the control's, log2", tasks,
        lambda task, arm: rows.faster(task, ARMS[0], arm, done),
        lambda task: "speed-ups " + ", ".join(f"{arm} {fresh(task, arm):.2f}" for arm in ARMS),
    )  # fmt: skip
    return int(not (sooner and better and len(done) == len(options.seeds)))


def _compared(
    what: str, tasks: Sequence[str], gaps: Callable[[str, str], list[float]], told: Callable[[str], str]
) -> bool:
    """Prints by how much the search is ahead of either control; whether it is on all tasks together, and nowhere surely
    behind."""
    print(what)
    held = True
    every: dict[str, list[float]] = {arm: [] for arm in ARMS[1:]}
    for task in tasks:
        line = [f"  {task:14} {told(task)}"]
        for arm, found in every.items():
            mean, low, high = difference_interval(gaps(task, arm), 0.0)
            line.append(f"over {arm} {mean:+.3f} ({low:+.3f} to {high:+.3f})")
            found += gaps(task, arm)
            held = held and high >= 0
        print("; ".join(line))
    for arm, found in every.items():
        mean, low, high = difference_interval(found, 0.0)
        print(f"  all tasks: over {arm} {mean:+.3f} ({low:+.3f} to {high:+.3f})")
        held = held and low > 0
    return held


if __name__ == "__main__":
    sys.exit(main())
