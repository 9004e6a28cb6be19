"""How soon evoforge answers: `--help` (median of five), and a campaign's first correct kernel.

    python benchmarks/startup.py [TASK.py]

The first kernel's time is taken from outside, from the start of the process to the line on stderr
that announces it; the campaign is stopped there. Exits 1 if a promise is missed (0.5 s and 20 s).
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["first_kernel_s", "help_s", "main"]

HELP_LIMIT_S = 0.5
FIRST_LIMIT_S = 20.0
_RUNS = 5
_GIVE_UP_S = 120.0
_TASK = Path(__file__).resolve().parent.parent / "experiments" / "tasks" / "add_rms_norm.py"
_EVOFORGE = (sys.executable, "-m", "evoforge")


def help_s() -> list[float]:
    """Wall seconds of `evoforge --help`, interpreter start included; the first run warms the disk cache."""
    times = []
    for _ in range(_RUNS + 1):
        began = time.perf_counter()
        subprocess.run([*_EVOFORGE, "--help"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    return times[1:]


def first_kernel_s(task: Path) -> float | None:
    """Wall seconds until the first correct kernel is announced; None if the run ended without."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/startup.db"
        began = time.perf_counter()
        command = [*_EVOFORGE, "run", str(task), "--minutes", "2", "--store", store, "--json"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            found = None
            for line in process.stderr:
                if "first correct kernel" in line:
                    found = time.perf_counter() - began
                if found is not None or time.perf_counter() - began > _GIVE_UP_S:
                    process.send_signal(signal.SIGINT)
                    break
            process.stderr.read()
        return found


def main() -> int:
    times = help_s()
    middle = statistics.median(times)
    print(f"evoforge --help: median {middle:.3f} s of {', '.join(f'{t:.3f}' for t in times)} (limit {HELP_LIMIT_S} s)")
    first = first_kernel_s(Path(sys.argv[1]) if len(sys.argv) > 1 else _TASK)
    text = "none before the run ended" if first is None else f"{first:.1f} s"
    print(f"first correct kernel: {text} (limit {FIRST_LIMIT_S:.0f} s)")
    return 0 if middle <= HELP_LIMIT_S and first is not None and first <= FIRST_LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
