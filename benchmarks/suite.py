"""How much faster than eager and torch.compile are the kernels of a whole suite, by class of work?

    python benchmarks/suite.py [EXPERIMENT.yaml] [--only TASK …] [--minutes M] [--store URL] [-o FOLDER] [--table]

Runs every campaign of the file that has not finished in the store, then `bench` on each, and prints a Markdown
table and the geometric means. Of a campaign, the elite with the best claim that is still correct counts, with
what the fresh processes say of it: choosing by what is printed would flatter. Products and convolutions, which
the clock moves most, are benched three times, and the bench whose ratio is the median is their row. A row is
written to FOLDER/rows.json as it comes; a further call goes on where the last one stopped (a row that is deleted
is measured again). A task that is refused, crashes or finds no kernel has a row with the reason and counts as
lost. Needs a quiet machine.

Exits 1 where a task is lost or no row was found.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evoforge.campaign import Campaign, bench, status
from evoforge.config import CampaignConfig, load_config
from evoforge.errors import EnvironmentChangedError, MissingToolError, NotFoundError, StoreError
from evoforge.evaluation.targets import resolve_target
from evoforge.evaluation.tasks import load_task

ROOT = Path(__file__).resolve().parents[1]
CLASSES: Mapping[str, str] = {
    "memory": "add_rms_norm layer_norm group_norm_silu softmax causal_softmax swiglu geglu rope qkv_split bn_add_relu "
    "depthwise_conv squeeze_excite image_normalize embedding_bag adam_step stencil spmv",
    "reduction": "cross_entropy distillation_loss focal_loss factorization_machine batch_stats grad_norm "
    "greedy_argmax matvec",
    "gemm": "matmul",
    "split_gemm": "matmul_split",
    "odd_gemm": "matmul_small_k matmul_tall matmul_small_batched linear_gelu int8_matmul int4_matmul moe_matmul "
    "kmeans_assign lstm_cell dlrm_interaction",
    "conv": "conv3x3 conv3x3_bn_relu",
    "attention": "attention decode_attention window_attention",
}
_TOP = 3
_BENCHES = {"gemm": 3, "split_gemm": 3, "odd_gemm": 3, "conv": 3}
_CLASS_OF = {task: name for name, tasks in CLASSES.items() for task in tasks.split()}
_MEASURED = (
    *("cell", "candidate", "params", "claimed", "speedup_eager", "speedup_compiled", "speedup_best_baseline", "low"),
    *("high", "latency_ms", "roofline_fraction", "verdict", "moved", "speedup_hot", "speedup_cold", "flags"),
)
_NOT_THE_TASKS_FAULT = (StoreError, MissingToolError, EnvironmentChangedError)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, nargs="?", default=ROOT / "experiments" / "cpu_suite.yaml")
    parser.add_argument("--only", action="append", default=[], metavar="TASK", help="only this task; repeatable")
    parser.add_argument("--minutes", type=float, help="of every campaign, instead of the file's")
    parser.add_argument("--store", default=f"sqlite:///{ROOT / 'archive' / 'campaigns' / 'cpu_suite.db'}")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "archive" / "reference" / "cpu_suite")
    parser.add_argument("--table", action="store_true", help="run nothing, print what the rows say")
    options = parser.parse_args()
    configs = {load_task(config.task).name: config for config in load_config(options.experiment)}
    if unknown := sorted(set(options.only) - set(configs)):
        parser.error(f"expected tasks of {options.experiment}, got {', '.join(unknown)}")
    wanted = options.only or list(configs)
    rows = Rows(options.output / "rows.json", list(configs))
    if not options.table:
        options.output.mkdir(parents=True, exist_ok=True)
        if options.store.startswith("sqlite:///"):
            Path(options.store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        for number, task in enumerate(wanted, 1):
            row = rows.get(task)
            if row is not None and not _benches_left(row):
                continue
            print(f"{task} ({number} of {len(wanted)}) …", file=sys.stderr, flush=True)
            row = row or _row(task, _with_minutes(configs[task], options.minutes), options.store)
            while _benches_left(row):
                row = _benched(row, options.store)
                rows.add(row)
            rows.add(row)
            print("  " + _said(row), file=sys.stderr, flush=True)
    found = [row for task in wanted if (row := rows.get(task))]
    for line in _report(found):
        print(line)
    return int(not found or any(row["reason"] for row in found))


class Rows:
    """rows.json: one row per task, in the order of the suite."""

    def __init__(self, path: Path, order: Sequence[str]) -> None:
        self._path, self._order = path, order
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self._rows: dict[str, dict[str, Any]] = {row["task"]: row for row in found}

    def get(self, task: str) -> dict[str, Any] | None:
        return self._rows.get(task)

    def add(self, row: dict[str, Any]) -> None:
        self._rows[row["task"]] = row
        ordered = [self._rows[task] for task in self._order if task in self._rows]
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        new.replace(self._path)  # a kill in between leaves the rows of before


def _with_minutes(config: CampaignConfig, minutes: float | None) -> CampaignConfig:
    if minutes is None:
        return config
    data = config.model_dump(by_alias=True)
    return CampaignConfig.model_validate({**data, "budget": {**data["budget"], "minutes": minutes}})


def _row(task: str, config: CampaignConfig, store: str) -> dict[str, Any]:
    """What the search found, before any bench."""
    cpu = resolve_target(config.target).fingerprint["cpu"]
    row = {"task": task, "class": _CLASS_OF.get(task, "other"), "reason": "", "cpu": cpu, "commit": _commit()}

    def search() -> dict[str, Any]:
        found = _standing(_searched(config, store), store)
        if found["filled"]:
            return {**found, "benches": []}
        return {**found, "reason": _nothing_found(found["campaign"], store)}

    return _extended({**row, "minutes": config.budget.minutes, "seconds": 0.0}, search)


def _extended(row: Mapping[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The row with what `work` finds; where it fails, with the reason."""
    began = time.monotonic()
    try:
        found = work()
    except _NOT_THE_TASKS_FAULT:
        raise
    except Exception as error:  # boundary: one task's failure is a row, the others go on
        found = {"reason": f"{type(error).__name__}: {error}"}
    return {**row, **found, "seconds": round(row["seconds"] + time.monotonic() - began, 1)}


@functools.cache
def _commit() -> str:
    """Of which state of the project rows speak, before any is written; empty outside of its repository."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def _searched(config: CampaignConfig, store: str) -> str:
    """The name of the campaign, which has finished now."""
    assert config.name is not None, "campaigns of a suite are found again by name"
    try:
        known = status(config.name, store)
    except NotFoundError:  # neither campaign nor, at first, store
        known = None
    if known is None:
        Campaign.create(config, store).run()
    elif known["state"] != "finished":
        Campaign.resume(config.name, store).run()
    return config.name


def _standing(name: str, store: str) -> dict[str, Any]:
    found = status(name, store)
    keys = ("campaign", "evaluations", "correct", "filled", "reachable", "coverage", "wall_s", "stop_reason")
    return {**{key: found[key] for key in keys}, "aa_margin": found["aa_margin"], "notices": found["notices"]}


def _benches_left(row: Mapping[str, Any]) -> int:
    return 0 if row["reason"] else _BENCHES.get(row["class"], 1) - len(row["benches"])


def _benched(row: Mapping[str, Any], store: str) -> dict[str, Any]:
    """The row with one bench more, and what the median one of its benches says (of two, the lower)."""

    def again() -> dict[str, Any]:
        found = _measured(row["campaign"], store)
        if "reason" in found:
            return found
        benches = sorted([*row["benches"], found], key=_over_best)
        return {**benches[(len(benches) - 1) // 2], "benches": benches}

    return _extended(row, again)


def _measured(name: str, store: str) -> dict[str, Any]:
    """What fresh processes say of the best elite by its claim, of three; what fails is passed over."""
    found = bench(name, store, top=_TOP)["rows"]
    correct = [row for row in found if row["status"] == "CORRECT"]
    failed = {row["candidate"][:12]: row["status"] for row in found if row["status"] != "CORRECT"}
    if not correct:
        return {"failed": failed, "reason": f"no elite held when measured again: {failed}"}
    best = max(correct, key=lambda row: float(row["claimed_low"]))
    return {**{key: best[key] for key in _MEASURED}, "failed": failed}


def _nothing_found(name: str, store: str) -> str:
    found = status(name, store)
    reasons = "; ".join(f"{kind}: {text}" for kind, text in found["reasons"].items())
    return f"no elite ({found['stop_reason']}); {reasons or 'nothing was judged'}"


def _said(row: Mapping[str, Any]) -> str:
    return f"lost: {row['reason']}" if row["reason"] else f"{_over_best(row):.2f}× {row['verdict']}"


def _over_best(measured: Mapping[str, Any]) -> float:
    """The speed-up over the better side: of its two medians, over processes and over blocks, the lower one."""
    keys = ("speedup_best_baseline", "speedup_eager", "speedup_compiled")
    return min(float(measured[key]) for key in keys if measured[key] is not None)


def _report(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of the tasks by class, what was lost, and a table of the classes."""
    groups = {name: [row for row in rows if row["class"] == name] for name in (*CLASSES, "other")}
    yield "| task | eager ms | compiled ms | evoforge ms | over best | 95% | | roofline | coverage | evaluations |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, group in groups.items():
        if group:
            yield f"| **{name}** | | | | | | | | | |"
            yield from map(_line, group)
    yield ""
    for row in rows:
        if row["reason"]:
            yield f"- lost: {row['task']}: {' '.join(row['reason'].split())}"
    yield ""
    yield "| class | tasks | FAST | SAME | SLOW | lost | geometric mean of the others | over eager |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, group in {**groups, "all": list(rows)}.items():
        if group:
            yield _summary(name, group)
    yield ""
    for cpu, count in Counter(row["cpu"] for row in rows).items():
        yield f"Measured on {cpu}: {count} tasks."


def _line(row: Mapping[str, Any]) -> str:
    counts = f"{row['filled']}/{row['reachable']} | {row['evaluations']}" if "filled" in row else "– | –"
    if row["reason"]:
        return f"| {row['task']} | – | – | – | lost | – | | – | {counts} |"
    ours = row["latency_ms"]
    sides = " | ".join(_ms(ours, row[f"speedup_{side}"]) for side in ("eager", "compiled"))
    roofline = "–" if row["roofline_fraction"] is None else f"{row['roofline_fraction']:.0%}"
    return (
        f"| {row['task']} | {sides} | {ours:.2f} | {_over_best(row):.2f}× | "
        f"{row['low']:.2f}–{row['high']:.2f} | {row['verdict']} | {roofline} | {counts} |"
    )


def _ms(ours: float, speedup: float | None) -> str:
    """A baseline's time in the same blocks; it may have none, where torch.compile fails."""
    return "–" if speedup is None else f"{ours * speedup:.2f}"


def _summary(name: str, group: Sequence[Mapping[str, Any]]) -> str:
    found = [row for row in group if not row["reason"]]
    means = _mean(map(_over_best, found)), _mean(row["speedup_eager"] for row in found)
    verdicts = Counter("lost" if row["reason"] else row["verdict"] for row in group)
    counts = " | ".join(str(verdicts[verdict]) for verdict in ("FAST", "SAME", "SLOW", "lost"))
    return f"| {name} | {len(group)} | {counts} | {' | '.join(means)} |"


def _mean(ratios: Iterable[float]) -> str:
    logs = [math.log(ratio) for ratio in ratios]
    return f"{math.exp(math.fsum(logs) / len(logs)):.2f}×" if logs else "–"


if __name__ == "__main__":
    sys.exit(main())
