"""Kills a campaign at random moments and resumes it every time: does it lose anything?

    python benchmarks/kills.py --kills 10 --evals 40 --seed 0

Prints, per kill, when it came and how many evaluations had been stored. Exits 1 if a stored evaluation
is missing later, a process is left behind, the evaluations are not those asked for, the archive is
not the fold of the store, or the store's own check finds something.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from evoforge.archives import Archive, fold_confirmations
from evoforge.core import Kind
from evoforge.errors import EvoforgeError
from evoforge.storage import open_store

TASK = Path(__file__).resolve().parents[1] / "experiments" / "tasks" / "add_rms_norm.py"
LONGEST_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--evals", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return _campaign(Path(folder), options.kills, options.evals, random.Random(options.seed))


def _campaign(folder: Path, kills: int, evals: int, rng: random.Random) -> int:
    url, cache = f"sqlite:///{folder}/store.db", str(folder / "cache")
    environment = {**os.environ, "EVOFORGE_CACHE": cache}
    evoforge = [sys.executable, "-m", "evoforge"]
    run = [*evoforge, "run", str(TASK), "--set", "M=64", "--store", url, "--json"]
    begin = [*run, "--name", "killed", "--evals", str(evals)]
    # What only the first campaign of a machine does is done first: the kills are to fall into a search.
    first = [*run, "--name", "first", "--evals", "1"]
    subprocess.run(first, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    resume = [*evoforge, "resume", "killed", "--store", url, "--json"]
    known: set[int] = set()
    faults: list[str] = []
    moments: list[float] = []
    while len(moments) < kills:
        command = resume if _created(url) else begin
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        moment = rng.uniform(1.0, 32.0)
        try:
            child.wait(timeout=moment)
            print("the campaign ended before the last kill; give it more --evals")
            return 1
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        moments.append(moment)
        now = _stored(url)
        left = _left(cache)
        print(
            f"kill {len(moments):2}: after {moment:4.1f} s, {len(now)} evaluations stored, {len(left)} processes left"
        )
        faults += ["a stored evaluation is gone"] * (not known <= now) + ["a process is left behind"] * bool(left)
        known = now
    done = subprocess.run(resume, capture_output=True, text=True, timeout=LONGEST_S, check=False, env=environment)
    if done.returncode:
        print(done.stderr[-2000:])
        return 1
    result = json.loads(done.stdout)
    with open_store(url) as store:
        rows = [row.evaluation for row in store.evaluations(campaign="killed")]
        faults += [str(finding) for finding in store.check()]
    charged = sum(row.kind is Kind.TRIAL and row.status.charged for row in rows)
    archive = Archive()
    archive.rebuild(fold_confirmations(rows))
    print(f"finished: {result['evaluations']} evaluations of {evals}, {charged} in the store; "
          f"QD score {result['qd_score']:.6f}, of the fold {archive.qd_score:.6f}")  # fmt: skip
    faults += ["not the evaluations asked for"] * (not result["evaluations"] == charged == evals)
    faults += ["the archive is not the fold of the store"] * (abs(archive.qd_score - result["qd_score"]) > 1e-9)
    faults += ["a process is left behind"] * bool(_left(cache))
    print("; ".join(faults) or "nothing lost, nothing left behind")
    return int(bool(faults))


def _created(url: str) -> bool:
    path = Path(url.removeprefix("sqlite:///"))
    if not path.exists():
        return False
    try:
        with open_store(url, create=False) as store:
            return any(row.name == "killed" for row in store.campaigns())
    except EvoforgeError:  # killed before the store had its tables: the next run makes them
        return False


def _stored(url: str) -> set[int]:
    if not _created(url):
        return set()
    with open_store(url) as store:
        return {row.id for row in store.evaluations(campaign="killed")}


def _left(cache: str) -> list[int]:
    """Processes of this campaign two seconds after its coordinator died."""
    deadline = time.monotonic() + 2.0
    while True:
        found = [process.pid for process in psutil.process_iter() if _belongs(process, cache)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _belongs(process: psutil.Process, cache: str) -> bool:
    try:
        return process.pid != os.getpid() and (
            process.environ().get("EVOFORGE_CACHE") == cache or any(cache in word for word in process.cmdline())
        )
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main())
