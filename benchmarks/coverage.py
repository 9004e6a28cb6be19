"""How many tasks get a correct kernel from the generator, by the judge's own verification?

    python benchmarks/coverage.py [FILE …] [--kernels 3] [--every] [--seed 0] [--set NAME=VALUE …] [-o ROWS]

Without files: those of `benchmarks/coverage`: `level1` (single operators), `level2` (fused sequences), `indices`
(assignments to slices, diagonals and places that are data) and `ranks` (maxima and sorts of computed values). Draws the
first kernel of a campaign and random ones until one is correct, and writes a row per task, what the others were
included; a rerun with the same `-o` goes on where it stopped. A task that cannot be lowered, or is not fit to be
searched, gives its refusal. With `--every` all kernels are drawn, at drawn values of their parameters, and those that
are not correct are printed with their genomes: a space should hold none.
Nothing is timed. Exits 1 where fewer than 95% of level 1 or 90% of any other folder got a correct kernel.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from evoforge.campaign._setup import analyse
from evoforge.core import Candidate, ParameterSpace, Strategy, Target
from evoforge.errors import EvoforgeError
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.targets import resolve_target
from evoforge.evaluation.tasks import load_task, parse_set
from evoforge.lowering.space import ScheduleSpace

HERE = Path(__file__).resolve().parent / "coverage"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--kernels", type=int, default=3, help="kernels drawn per task")
    parser.add_argument("--every", action="store_true", help="do not stop at the first correct one")
    parser.add_argument("--seed", type=int, default=0, help="of inputs and draws")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-o", "--rows", type=Path, help="JSONL; tasks that are in it are not run again")
    options = parser.parse_args()
    files = options.files or sorted(HERE.glob("*/*.py"))
    rows: dict[str, dict[str, Any]] = {}
    if options.rows and options.rows.exists():
        rows = {row["task"]: row for row in map(json.loads, options.rows.read_text().splitlines())}
    target = resolve_target("cpu")
    overrides = dict(parse_set(item) for item in options.set)
    for path in files:
        name = f"{path.parent.name}/{path.stem}"
        if name in rows:
            continue
        rows[name] = {"task": name, **_row(path, target, overrides, options)}
        print(f"{name}: {_said(rows[name])}", flush=True)
        if options.rows:
            with options.rows.open("a") as out:
                out.write(json.dumps(rows[name]) + "\n")
    return _report([rows[f"{path.parent.name}/{path.stem}"] for path in files])


def _row(path: Path, target: Target, overrides: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    began, statuses, correct = time.monotonic(), [], False
    try:
        task = load_task(str(path), overrides)
        with Judge(task, target, seed=options.seed) as judge:
            judge.open()
            setup = analyse(judge, task, target)
            if setup.uncovered:
                return {"refused": setup.uncovered}
            admission = judge.admit()
            if not admission.fit:
                return {"refused": "; ".join(admission.reasons)}
            judge.set_context(setup.trace_signatures, setup.unfused)
            space = ScheduleSpace(
                list(setup.graphs.values()), l1_bytes=target.l1_bytes, l2_bytes=target.l2_bytes,
                vector_bytes=target.vector_bytes, threads=target.threads,
                matrix_parts=target.matrix_parts(task.tolerance.precision), finite=task.tolerance.nonfinite != "match",
            )  # fmt: skip
            rng = np.random.default_rng(options.seed)
            for number in range(options.kernels):
                genome = space.sample(rng, Strategy()) if number else space.default()
                source = space.render(genome)
                values = ParameterSpace.parse(source)
                params = values.draw(rng) if options.every and number else values.defaults()
                found = judge.verify(Candidate("cpp", source), params, unseen=True)
                build_s = found.seconds.get("build")
                one: dict[str, Any] = {"status": str(found.status), "reason": found.reason, "build_s": build_s}
                statuses.append(one if found.status.correct else {**one, "genome": genome, "params": params})
                correct = correct or found.status.correct
                if correct and not options.every:
                    break
    except EvoforgeError as error:
        return {"refused": str(error)}
    return {
        "correct": correct,
        "kernels": statuses,
        "seconds": round(time.monotonic() - began, 1),
    }


def _said(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"refused: {row['refused']}"
    said = []
    for one in row["kernels"]:
        text = f"{one['status']}{': ' + one['reason'] if one['reason'] else ''}"
        said.append(f"\n    {text} {one['genome']} {one['params']}" if "genome" in one else text)
    return f"{len(said)} kernels, {', '.join(sorted(set(said)))}" if len(said) > 3 else ", ".join(said)


def _report(rows: list[dict[str, Any]]) -> int:
    total, right = collections.Counter[str](), collections.Counter[str]()
    for row in rows:
        level = row["task"].partition("/")[0]
        total[level] += 1
        right[level] += bool(row.get("correct"))
    for level in sorted(total):
        refused = sum("refused" in row for row in rows if row["task"].startswith(f"{level}/"))
        print(f"{level}: {right[level]} of {total[level]} correct, {refused} refused")
    return int(any(right[level] < (0.95 if level == "level1" else 0.9) * total[level] for level in total))


if __name__ == "__main__":
    sys.exit(main())
