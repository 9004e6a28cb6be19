"""Does the search beat random sampling of its own space, and Optuna alone on one flat space?

    python benchmarks/search.py -o rows.jsonl --folder DIR [--task softmax] [--seeds 10-19] [--evals 60]

Real campaigns of the generator on this CPU, without a model, on small tasks. Arms with equal evaluations, Optuna's
trials counted: ``evolved`` is evoforge as it comes, ``random`` draws schedules as the space does for a first
generation and parameters evenly, ``optuna`` is TPE over genes and parameters in one flat space. All arms of a task
replay one record in DIR, to which what is measured is added (`coevolution.py kernels` can share DIR and rows).

Rows are appended as they come, seed after seed; a second call goes on where the first stopped. Prints the best elite's
speed-up, measured afresh at the end of every campaign (log2, mean over campaigns), and the area under the QD score per
evaluation, with paired bootstrap 95% intervals, over the seeds that all tasks have. Exits 1 unless all seeds are there
and both are better than either control on all tasks together, and on none surely worse. Needs a quiet machine: no two
of these side by side.
"""

from __future__ import annotations

import argparse
import sys
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
        done.append(seed)
    if not done:
        return 1
    held = len(done) == len(options.seeds)
    print(f"{len(done)} of {len(options.seeds)} seeds")
    for key, name in (
        ("fresh", "best speed-up, measured afresh, log2"),
        ("qd_auc", "QD score, mean over the evaluations"),
    ):
        print(name)
        gaps: dict[str, list[float]] = {arm: [] for arm in ARMS[1:]}
        for task in tasks:
            values = {arm: np.asarray(rows.scores(task, arm, done, key)) for arm in ARMS}
            if key == "qd_auc":
                values = {arm: found / options.evals for arm, found in values.items()}
            line = [f"  {task:14} evolved {values['evolved'].mean():7.3f}"]
            for arm in ARMS[1:]:
                mean, low, high = difference_interval(values["evolved"], values[arm])
                line.append(f"{arm} {values[arm].mean():7.3f}: {mean:+.3f} ({low:+.3f} to {high:+.3f})")
                gaps[arm] += list(values["evolved"] - values[arm])
                held = held and high >= 0
            print("; ".join(line))
        for arm, found in gaps.items():
            if found:
                mean, low, high = difference_interval(found, [0.0] * len(found))
                print(f"  all tasks: evolved - {arm} {mean:+.3f} ({low:+.3f} to {high:+.3f})")
                held = held and low > 0
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
