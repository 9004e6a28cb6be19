"""Are cells true? Generated kernels, described from facts, against the cell their genome implies.

    python benchmarks/cells.py [--kernels 300] [--refactored 50] [--seed 0] [--json FILE]

Prints the agreement in total and by axis, every disagreement, and how many of the refactored
kernels (renamed, commented, dead code, other loops, …) moved to another cell. Nothing is timed.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refactor import refactored

from evoforge.archives import Descriptor
from evoforge.core import Cell, ParameterSpace, Signature, Strategy, Target
from evoforge.evaluation.build import Builder
from evoforge.evaluation.facts import collect_facts
from evoforge.evaluation.targets import resolve_target
from evoforge.lowering.cost import laid_out, trace_signature
from evoforge.lowering.ir import Graph, from_json
from evoforge.lowering.space import ScheduleSpace

TASKS = Path(__file__).resolve().parent.parent / "experiments" / "tasks"


@dataclass(frozen=True)
class Drawn:
    """One generated kernel at drawn parameter values, and the cell that its genome implies."""

    task: str
    genome: dict[str, Any]
    source: str
    params: dict[str, int]
    implied: Cell


class Bench:
    """One task: its graph, signatures and schedule space."""

    def __init__(self, path: Path, target: Target, builder: Builder) -> None:
        from evoforge.evaluation.tasks import load_task
        from evoforge.evaluation.worker import ReferenceWorker

        self.name, self.target, self.builder = path.stem, target, builder
        task = load_task(str(path))
        with ReferenceWorker(task, threads=target.threads, seed=0) as worker:
            workload = task.workloads[0].name
            self.signature = worker.describe()[workload]
            captured = from_json(worker.analyse("evoforge.lowering.capture:capture", workload))
            self.graph: Graph = laid_out(captured, self.signature)
        self.traced: Signature | None = trace_signature(self.graph, self.signature, target.l2_bytes)
        self.space = ScheduleSpace(
            [self.graph], l1_bytes=target.l1_bytes, l2_bytes=target.l2_bytes, vector_bytes=target.vector_bytes,
            threads=target.threads, matrix_parts=target.matrix_parts(task.tolerance.precision),
            finite=task.tolerance.nonfinite != "match",
        )  # fmt: skip

    def draw(self, rng: np.random.Generator) -> Drawn:
        genome = self.space.sample(rng, Strategy())
        source = self.space.render(genome)
        space = ParameterSpace.parse(source)
        params = space.defaults()
        for _ in range(50):
            values = {p.name: int(rng.choice(p.choices)) for p in space.parameters}
            if space.feasible(values):
                params = values
                break
        return Drawn(self.name, genome, source, params, self.space.implied_cell(genome, params))

    def facts(self, source: str, params: dict[str, int]) -> dict[str, Any]:
        built = self.builder.build(source, params, self.signature)
        if built.object_path is None:
            return {"error": built.reason}
        return collect_facts(
            source, params, built, self.signature, self.traced, self.target, self.builder, unfused=self.graph.unfused
        )


def benches(target: Target, builder: Builder, names: list[str]) -> Iterator[Bench]:
    for path in sorted(TASKS.glob("*.py")):
        if not names or path.stem in names:
            yield Bench(path, target, builder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--refactored", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--task", action="append", default=[], help="only this task; may be repeated")
    parser.add_argument("--json", type=Path, help="write every kernel with its facts to this file")
    options = parser.parse_args()
    target, descriptor, rng = resolve_target("cpu"), Descriptor(), np.random.default_rng(options.seed)
    every = list(benches(target, Builder(target), options.task))
    agreed: collections.Counter[str] = collections.Counter()
    rows: list[dict[str, Any]] = []
    known: set[tuple[str, str]] = set()
    seconds = 0.0
    tries = 0
    while len(rows) < options.kernels and tries < 20 * options.kernels:
        bench = every[tries % len(every)]
        tries += 1
        drawn = bench.draw(rng)
        if (drawn.source, str(drawn.params)) in known:
            continue
        known.add((drawn.source, str(drawn.params)))
        began = time.perf_counter()
        facts = bench.facts(drawn.source, drawn.params)
        seconds += time.perf_counter() - began
        measures = descriptor.measure(facts)
        for axis, level, implied in zip(descriptor.axes, measures.values(), drawn.implied, strict=True):
            agreed[axis] += level == implied
        same = descriptor.cell(facts) == drawn.implied
        agreed["cell"] += same
        rows.append({"bench": bench.name, "drawn": vars(drawn), "facts": facts, "cell": list(measures.values())})
        if not same:
            print(f"{bench.name}: implied {drawn.implied}, from facts {tuple(measures.values())}")
            print(f"    {json.dumps(drawn.genome)} {json.dumps(drawn.params)}  {facts.get('error', '')}", flush=True)
    cells = {tuple(row["cell"]) for row in rows}
    print(f"{len(rows)} kernels, {len(cells)} cells, {seconds / max(len(rows), 1):.2f} s each with the build")
    for what in ("cell", *descriptor.axes):
        print(f"  {what:8} agrees on {agreed[what]} of {len(rows)} ({agreed[what] / max(len(rows), 1):.1%})")
    moved = _refactor(every, rows[: options.refactored], rng, descriptor)
    if options.json:
        options.json.write_text(json.dumps(rows, default=str))
    return int(agreed["cell"] < 0.95 * len(rows) or moved > 0)


def _refactor(every: list[Bench], rows: list[dict[str, Any]], rng: np.random.Generator, descriptor: Descriptor) -> int:
    """How many of these kernels a harmless rewriting moves."""
    by_name = {bench.name: bench for bench in every}
    moved = tried = 0
    for row in rows:
        drawn, bench = row["drawn"], by_name[row["bench"]]
        for how, text in refactored(drawn["source"], rng):
            tried += 1
            facts = bench.facts(text, drawn["params"])
            cell = list(descriptor.measure(facts).values())
            if cell != row["cell"]:
                moved += 1
                print(f"{bench.name}: {how} moved {row['cell']} to {cell} {facts.get('error', '')}")
                print(f"    {json.dumps(drawn['genome'])} {json.dumps(drawn['params'])}", flush=True)
                break
    print(f"{moved} of {len(rows)} kernels moved when refactored ({tried} rewritten texts)")
    return moved


if __name__ == "__main__":
    sys.exit(main())
