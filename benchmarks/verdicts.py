"""Does the judge call noise FAST, and does it see a real difference?

    python benchmarks/verdicts.py same    --count 300 -o rows.jsonl   # a binary against itself
    python benchmarks/verdicts.py slower  --count 200 -o rows.jsonl   # against itself with extra iterations

`same`: half of the comparisons on a task that stays in cache, half on one that does not, and half of each
while another process computes. `slower`: calibrated extra iterations, 5% in cache and 15% in memory,
`count` comparisons per task on an idle machine. Rows are appended as they come; a second call goes on
where the first stopped. Prints the counts; exits 1 where more than 1% of `same` is FAST, or fewer
than 95% of `slower` are.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from evoforge.core import Candidate
from evoforge.evaluation.comparison import Verdict
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.targets import resolve_target
from evoforge.evaluation.tasks import load_task

TASK = """
import torch

M, N = {rows}, {columns}


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a * 2 + b


def get_inputs():
    return [torch.randn(M, N), torch.randn(M, N)]


def get_init_inputs():
    return []
"""
KERNEL = """
#include "evoforge.h"

extern "C" int evo_run(const evo_call* call) {{
    const int64_t n = EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1);
    const float *a = EVO_IN(float, 0), *b = EVO_IN(float, 1);
    float* out = EVO_OUT(float, 0);
#pragma omp parallel num_threads(call->threads)
    {{
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < n; i++) out[i] = a[i] * 2 + b[i];
        double spin = 1.0;
        for (int64_t i = 0; i < {extra}; i++) {{
            spin = spin * 0.999 + 1.0;
            asm volatile("" : "+x"(spin));
        }}
    }}
    return 0;
}}
"""
SIZES = {"cache": (64, 1024), "memory": (4096, 4096)}
SLOWER = {"cache": 0.05, "memory": 0.15}
_CALIBRATIONS = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("same", "slower"))
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.output.read_text().splitlines()] if options.output.exists() else []
    rows = [row for row in rows if row["what"] == options.what]
    with options.output.open("a") as file:
        for size in SIZES:
            wanted = options.count if options.what == "slower" else options.count // 2
            done = sum(row["size"] == size for row in rows)
            if done < wanted:
                for row in _compare(options.what, size, done, wanted):
                    rows.append(row)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
    return _report(options.what, rows)


def _compare(what: str, size: str, done: int, wanted: int) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{size}.py"
        path.write_text(TASK.format(rows=SIZES[size][0], columns=SIZES[size][1]))
        with Judge(load_task(str(path)), resolve_target("cpu"), seed=0) as judge:
            judge.open()
            judge.wait_compiled(600.0)
            plain = _kernel(0)
            extra, measured = (0, 0.0) if what == "same" else _calibrated(judge, SLOWER[size])
            for index in range(done, wanted):
                loaded = what == "same" and index % 2 == 1
                began = time.perf_counter()
                with _load() if loaded else contextlib.nullcontext():
                    found = judge.compare((plain, {}), (_kernel(extra), {}))
                seconds = round(time.perf_counter() - began, 2)
                yield {"what": what, "size": size, "loaded": loaded, "verdict": str(found.verdict),
                       "ratio": found.ratio, "low": found.low, "high": found.high, "margin": found.margin,
                       "calibrated": measured, "extra": extra, "seconds": seconds}  # fmt: skip
                print(f"{size} {index + 1}/{wanted} {found.verdict} {found.ratio:.4f} in {seconds} s", file=sys.stderr)


def _kernel(extra: int) -> Candidate:
    return Candidate("cpp", KERNEL.format(extra=extra))


def _calibrated(judge: Judge, share: float) -> tuple[int, float]:
    """How many extra iterations make the kernel slower by `share`, and by how much they did when measured.

    A few iterations hide behind memory that is waited for: what many of them cost tells too little. No more than
    `share` may be measured, since what is easier to see would flatter.
    """
    plain_ms, extra = _latency_ms(judge, 0), 1000
    while (slow_ms := _latency_ms(judge, extra)) < 2 * plain_ms:
        extra *= 4
    extra = round(share * plain_ms / (slow_ms - plain_ms) * extra)
    for _ in range(_CALIBRATIONS):
        found = _slowdown(judge, extra)
        if 0.94 * share <= found <= share:
            break
        extra = round(extra * min(max(0.97 * share / found, 0.5), 2.0))
    return extra, found


def _slowdown(judge: Judge, extra: int) -> float:
    plain, slow = _kernel(0), _kernel(extra)
    return statistics.median(judge.compare((plain, {}), (slow, {})).ratio for _ in range(9)) - 1


def _latency_ms(judge: Judge, extra: int) -> float:
    found = min(
        (judge.trial(_kernel(extra), {}, wanted_facts=False) for _ in range(3)), key=lambda one: one.latency_ms or 1e9
    )
    assert found.latency_ms is not None, found.reason
    return found.latency_ms


@contextlib.contextmanager
def _load() -> Iterator[None]:
    """Another process that computes all the time, until this one ends."""
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"
    with subprocess.Popen([sys.executable, "-c", loop]) as process:
        try:
            yield
        finally:
            process.kill()


def _report(what: str, rows: list[dict[str, object]]) -> int:
    for size in SIZES:
        own = [row for row in rows if row["size"] == size]
        counts = collections.Counter(str(row["verdict"]) for row in own)
        print(f"{what} {size:7}: {len(own)} comparisons: " + ", ".join(f"{counts[str(v)]} {v}" for v in Verdict))
        if what == "slower" and counts[str(Verdict.FAST)] < 0.95 * len(own):
            return 1
    fast = sum(row["verdict"] == str(Verdict.FAST) for row in rows)
    return int(what == "same" and fast > 0.01 * len(rows))


if __name__ == "__main__":
    sys.exit(main())
