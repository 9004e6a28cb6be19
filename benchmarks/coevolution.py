"""Do meta-prompts that evolve with the kernels earn more than those that stay as they are?

    python benchmarks/coevolution.py model -o rows.jsonl [--seeds 10-29] [--pilot 100-109] [--shared 0.5] [--decisive 0]
    python benchmarks/coevolution.py kernels -o rows.jsonl --folder DIR [--task softmax] [--seeds 10-19]

`model`: campaigns whose kernels a simulated model writes (`simulated_model.py` says what is assumed of it)
and a simulated machine judges; everything between the two is evoforge's own: loop, emitters, bandit, pool,
evolution, rendering, parsing, ledger. Arms with equal dollars:

- ``evolved``: the seeds that ship, evolving;
- ``static:NAME``: one seed alone, for every seed. The best on the pilot campaigns is what is compared;
- ``unevolved``: the seeds that ship, no evolution (beside the bars);
- ``shuffled``: as evolved, but every outcome is booked under an active meta-prompt drawn at random, for
  bandit, pool and evidence alike;
- ``scrambled``: as evolved, but what came of an outcome (gain, validity, status, reason) is exchanged with that of an
  earlier outcome, so that the evidence's words are no longer true either (beside the bars).

`kernels`: real campaigns of the generator on this CPU, without a model, on small tasks. Arms with equal
evaluations: ``evolved``, ``frozen:NAME`` (one seed alone; the best on the pilot campaigns is compared) and
``shuffled``. All arms of a task replay one record in DIR, to which what is measured is added. Needs a quiet machine.

Rows are appended as they come; a second call goes on where the first stopped. Prints archive gain (QD
score) per dollar of every arm and its ratios with bootstrap 95% intervals over campaigns; for kernels the QD
score and paired differences, by task. `model` exits 1 where evolved earns less than 1.5 times the best
static seed or 1.3 times shuffled; `kernels` where on some task evolved is surely worse than either (the whole
interval below 0), or on no more than half of the tasks better.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from recorded_campaigns import TASKS, Measured, difference_interval, seeds
from simulated_campaign import run_campaign
from simulated_model import SHARED

from evoforge.prompts import PromptPool

BARS = {"static": 1.5, "shuffled": 1.3}
_DRAWS = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    model = commands.add_parser("model", help="a simulated model, priced by the token")
    model.add_argument("-o", "--output", type=Path, required=True)
    model.add_argument("--seeds", type=seeds, default=seeds("10-29"))
    model.add_argument("--pilot", type=seeds, default=seeds("100-109"), help="campaigns that choose the static seed")
    model.add_argument("--usd", type=float, default=4.0, help="of every campaign")
    model.add_argument("--shared", type=float, default=SHARED, help="part of an idea's worth that all tasks have")
    model.add_argument("--decisive", type=int, default=0, help="ideas of a task that decide; 0: all count a little")
    model.add_argument("--jobs", type=int, default=2)
    model.add_argument("--arm", action="append", default=[], help="beside the best static only this; repeatable")
    kernels = commands.add_parser("kernels", help="real kernels of the generator")
    kernels.add_argument("-o", "--output", type=Path, required=True)
    kernels.add_argument("--folder", type=Path, required=True, help="of the records, one store per task")
    kernels.add_argument("--task", action="append", default=[], choices=sorted(TASKS), help="only this; repeatable")
    kernels.add_argument("--seeds", type=seeds, default=seeds("10-19"))
    kernels.add_argument("--pilot", type=seeds, default=seeds("100-102"))
    kernels.add_argument("--evals", type=int, default=60, help="of every campaign")
    kernels.add_argument("--minutes", type=float, help="begin no campaign after so many; a further call goes on")
    options = parser.parse_args()
    return _model(options) if options.what == "model" else _kernels(options)


def _model(options: argparse.Namespace) -> int:
    rows = Rows(options.output, options.usd, options.shared, options.decisive)
    names = [prompt.name for prompt in PromptPool.default("cpp")]
    rows.fill([(f"static:{name}", seed) for name in names for seed in options.pilot], options.jobs)
    best = max(names, key=lambda name: float(np.mean(rows.rates(f"static:{name}", options.pilot))))
    arms = options.arm or ["evolved", "shuffled", "scrambled", "unevolved"]
    static = f"static:{best}"
    rows.fill([(arm, seed) for seed in options.seeds for arm in (static, *arms)], options.jobs)
    print(f"{len(options.pilot)} pilot campaigns, ${options.usd:g} each, archive gain per dollar:")
    for name in names:
        print(f"  {f'static:{name}':26} {np.mean(rows.rates(f'static:{name}', options.pilot)):7.2f}")
    print(f"campaigns {options.seeds.start}-{options.seeds.stop - 1}, archive gain per dollar:")
    rates = {arm: rows.rates(arm, options.seeds) for arm in (static, *arms)}
    for arm, values in rates.items():
        print(f"  {arm:26} {np.mean(values):7.2f}")
    return int(not _compared(rates, static))


def _compared(rates: Mapping[str, Sequence[float]], static: str) -> bool:
    """Prints evolved over every other arm; whether both bars are met."""
    met = True
    for arm in rates:
        if arm == "evolved" or "evolved" not in rates:
            continue
        bar = BARS.get(arm.partition(":")[0])
        ratio, low, high = ratio_interval(rates["evolved"], rates[arm])
        wins = sum(a > b for a, b in zip(rates["evolved"], rates[arm], strict=True))
        verdict = "" if bar is None else f"; asked for {bar:g}: {'met' if ratio >= bar else 'missed'}"
        print(f"evolved / {arm}: {ratio:.2f} ({low:.2f}-{high:.2f}), higher in {wins} of {len(rates[arm])}{verdict}")
        met = met and (bar is None or ratio >= bar)
    return met


def _kernels(options: argparse.Namespace) -> int:
    names = [f"frozen:{prompt.name}" for prompt in PromptPool.default("cpp")]
    rows = Measured(options.output, options.folder, options.evals, options.minutes)
    sure, better, compared = True, 0, 0
    for task in options.task or sorted(TASKS):
        if not rows.fill(task, [(arm, seed) for seed in options.pilot for arm in names]):
            break
        best = max(names, key=lambda arm: float(np.mean(rows.scores(task, arm, options.pilot))))
        if not rows.fill(task, [(arm, seed) for seed in options.seeds for arm in ("evolved", best, "shuffled")]):
            break
        print(f"{task}: QD score over campaigns {options.seeds.start}-{options.seeds.stop - 1}")
        ours, compared, low_of = rows.scores(task, "evolved", options.seeds), compared + 1, []
        for arm in (best, "shuffled"):
            theirs = rows.scores(task, arm, options.seeds)
            mean, low, high = difference_interval(ours, theirs)
            low_of.append(mean)
            sure = sure and high >= 0
            print(
                f"  evolved {np.mean(ours):.2f}, {arm} {np.mean(theirs):.2f}: {mean:+.2f} ({low:+.2f} to {high:+.2f})"
            )
        better += min(low_of) > 0
    wanted = len(options.task or TASKS)
    print(
        f"evolved better than both on {better} of {compared} tasks" + ("" if compared == wanted else ", not all done")
    )
    return int(not (sure and compared == wanted and better > wanted / 2))


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of the means of paired campaigns, and its bootstrap 95% interval over pairs."""
    a, b = np.asarray(ours), np.asarray(theirs)
    drawn = np.random.default_rng(0).integers(len(a), size=(_DRAWS, len(a)))
    low, high = np.quantile(a[drawn].mean(axis=1) / b[drawn].mean(axis=1), [0.025, 0.975])
    return float(a.mean() / b.mean()), float(low), float(high)


class Rows:
    """Campaigns of `usd` dollars in worlds of one kind, one JSON line each, by (arm, seed)."""

    def __init__(self, path: Path, *world: float) -> None:
        self._path, self._world = path, world
        text = path.read_text() if path.exists() else ""
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
        for row in map(json.loads, text.splitlines()):
            if (row["budget_usd"], row.get("shared", SHARED), row.get("decisive", 0)) == world:
                self._rows[row["arm"], row["seed"]] = row

    def fill(self, wanted: Iterable[tuple[str, int]], jobs: int) -> None:
        """Runs what is missing."""
        missing = [key for key in wanted if key not in self._rows]
        if not missing:
            return
        each = len(missing)
        with ProcessPoolExecutor(jobs) as pool, self._path.open("a") as file:
            done = pool.map(run_campaign, *zip(*missing, strict=True), *([part] * each for part in self._world))
            for number, row in enumerate(done, 1):
                self._rows[row["arm"], row["seed"]] = row
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"\r{number} of {each} campaigns", end="", file=sys.stderr)
        print(file=sys.stderr)

    def rates(self, arm: str, seeds: Iterable[int]) -> list[float]:
        """Archive gain per dollar, in the order of seeds."""
        return [self._rows[arm, seed]["qd_score"] / self._rows[arm, seed]["usd"] for seed in seeds]


if __name__ == "__main__":
    sys.exit(main())
