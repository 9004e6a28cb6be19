"""Does a campaign survive what kernels and machines do to it?

    python benchmarks/robustness.py

A campaign is given a fork bomb, compilers' bombs, a kernel that takes all memory and ones that never end, as
seeds of its own; one whose store's disk is full, which is resumed once there is room (as root, on a tmpfs); one
whose output nobody reads. Prints what became of each. Exits 1 where a campaign does not end with the evaluations
asked for, a process is left behind, or the store's own check finds something. (`benchmarks/kills.py` kills the
judge itself.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import kills

from evoforge.core import Kind, Status
from evoforge.selftest import fixtures
from evoforge.storage import open_store

HOSTILE = ("fork_bomb", "constexpr_bomb", "macro_bomb", "template_bomb", "assembler_bomb", "blows_up_memory",
           "endless_loop", "endless_workspace")  # fmt: skip
EVALS = 16


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        task = str(fixtures.task_path("add"))
        faults = [*_hostile(home, task), *_full_disk(home, task), *_closed_pipe(home, task)]
    print("; ".join(faults) or "nothing lost, nothing left behind")
    return int(bool(faults))


def _run(home: Path, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EVOFORGE_CACHE": str(home / "cache")}
    command = [sys.executable, "-m", "evoforge", *words]
    return subprocess.run(command, env=environment, text=True, check=False, timeout=900, **more)  # type: ignore[call-overload, no-any-return]


def _hostile(home: Path, task: str) -> list[str]:
    url = f"sqlite:///{home}/hostile.db"
    folder = Path(fixtures.__file__).parent / "attacks"
    seeds = [word for name in HOSTILE for word in ("--from", str(folder / f"{name}.cpp"))]
    words = ["run", task, *seeds, "--evals", str(EVALS), "--name", "hostile", "--store", url, "--json"]
    done = _run(home, *words, capture_output=True)
    if done.returncode:
        return [f"the campaign with hostile seeds ended {done.returncode}: {done.stderr[-500:]}"]
    with open_store(url) as store:
        rows = [row.evaluation for row in store.evaluations(campaign="hostile", kind=Kind.TRIAL)]
        sources = {c.id: c.source for c in store.candidates("hostile")}
        faults = [str(finding) for finding in store.check()]
    texts = {(folder / f"{name}.cpp").read_text(): name for name in HOSTILE}
    for row in rows:
        if (name := texts.get(sources[row.candidate])) is not None:
            print(f"{name:20} {row.status:16} {sum(row.seconds.values()):5.1f} s  {row.reason[:90]}")
            faults += [f"{name} is CORRECT"] * (row.status is Status.CORRECT)
    correct = sum(row.status is Status.CORRECT for row in rows)
    print(f"hostile seeds: {json.loads(done.stdout)['evaluations']} evaluations of {EVALS}, {correct} correct")
    faults += ["not the evaluations asked for"] * (json.loads(done.stdout)["evaluations"] != EVALS)
    return faults + ["a process is left behind"] * bool(kills._left(str(home / "cache")))


def _full_disk(home: Path, task: str) -> list[str]:
    disk = home / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", disk], check=False).returncode
    ):
        print("full disk: not tried, a small file system takes root to mount")
        return []
    try:
        url = f"sqlite:///{disk}/full.db"
        words = ["run", task, "--evals", str(EVALS), "--name", "full", "--store", url, "--json"]
        first = _run(home, *words, capture_output=True)
        said = (first.stdout + first.stderr).strip().splitlines()[-1][:200]
        print(f"full disk: exit {first.returncode}: {said}")
        if first.returncode != 2 or "Traceback" in first.stderr:
            return [f"a full disk ends a campaign with {first.returncode}"]
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        with open_store(url) as store:
            known = {row.id for row in store.evaluations()}
            there = [row.name for row in store.campaigns()]
        again = ["resume", "full", "--store", url, "--json"] if there else words
        done = _run(home, *again, capture_output=True)
        with open_store(url) as store:
            kept = known <= {row.id for row in store.evaluations()}
            faults = [str(finding) for finding in store.check()]
        print(f"full disk: {len(known)} evaluations before, {again[0]} ended {done.returncode}")
        faults += ["a stored evaluation is gone"] * (not kept)
        if done.returncode or json.loads(done.stdout)["evaluations"] != EVALS:
            faults.append(f"after a full disk: {done.stdout[-300:]}{done.stderr[-300:]}")
        return faults
    finally:
        subprocess.run(["umount", disk], check=False)


def _closed_pipe(home: Path, task: str) -> list[str]:
    url = f"sqlite:///{home}/pipe.db"
    read, write = os.pipe()
    os.close(read)
    done = _run(home, "run", task, "--evals", "4", "--name", "pipe", "--store", url, stdout=write, stderr=write)
    os.close(write)
    with open_store(url) as store:
        rows = store.evaluations(campaign="pipe", kind=Kind.TRIAL)
    print(f"closed pipe: exit {done.returncode}, {len(rows)} evaluations stored")
    resumed = _run(home, "resume", "pipe", "--store", url, "--json", capture_output=True)
    found = json.loads(resumed.stdout).get("evaluations") if resumed.stdout else None
    return [f"after a closed pipe: {found} evaluations: {resumed.stderr[-300:]}"] * (found != 4)


if __name__ == "__main__":
    sys.exit(main())
