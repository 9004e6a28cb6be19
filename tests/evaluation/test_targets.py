"""Targets, their fingerprints, and who may measure."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from evoforge.errors import MissingToolError, UnsupportedError, UsageError
from evoforge.evaluation import targets
from evoforge.evaluation.ceilings import measure_ceilings
from evoforge.evaluation.targets import (
    ISAS,
    device_lock,
    find_compiler,
    known_targets,
    pinned_cpus,
    resolve_target,
)


def test_the_plain_target_uses_the_physical_cores_natively() -> None:
    target = resolve_target("cpu")
    assert (target.kind, target.isa) == ("cpu", "native")
    assert 1 <= target.threads <= len(os.sched_getaffinity(0))
    assert target.threads == target.fingerprint["cores"]
    assert target.vector_bytes in (16, 32, 64)
    assert 8 << 10 <= target.l1_bytes <= target.l2_bytes
    assert target.fingerprint["l2_total_bytes"] == target.l2_bytes * target.threads
    assert target.id == resolve_target("cpu").id


def test_every_variant_is_a_target_of_its_own() -> None:
    specs = ["cpu", "cpu:threads=1", "cpu:isa=x86-64", "cpu:threads=1,isa=x86-64"]
    assert len({resolve_target(spec).id for spec in specs}) == 4
    both = resolve_target("cpu:threads=1,isa=x86-64-v2")
    assert (both.threads, both.isa, both.vector_bytes) == (1, "x86-64-v2", 16)
    assert both.fingerprint["l2_total_bytes"] == both.l2_bytes


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gpu", "expected a target like cpu"),
        ("cpu:threads=0", "expected threads from 1 to"),
        ("cpu:threads=100000", "expected threads from 1 to"),
        ("cpu:threads", "expected threads=N or isa=NAME"),
        ("cpu:cores=2", "expected threads=N or isa=NAME"),
        ("cpu:threads=1,threads=1", "each once"),
        ("cpu:isa=znver9", "expected an isa of native, x86-64"),
    ],
)
def test_what_is_not_a_target_is_refused(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_target(spec)


def test_gpu_targets_are_known_and_come_later() -> None:
    with pytest.raises(UnsupportedError, match="comes later"):
        resolve_target("cuda:sm_90")


def test_an_isa_that_the_cpu_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = frozenset().union(*(needed for name, (_, needed) in ISAS.items() if name != "x86-64-v4")) | {"avx512f"}
    monkeypatch.setattr(targets, "_cpu", lambda: ("a CPU", flags))
    assert resolve_target("cpu:isa=x86-64-v3").vector_bytes == 32
    with pytest.raises(UsageError, match="lacks avx512bw, avx512cd, avx512dq, avx512vl"):
        resolve_target("cpu:isa=x86-64-v4")
    assert "cpu:isa=x86-64-v4" not in {target.spec for target in known_targets()}


def test_a_matrix_unit_is_used_natively_only(monkeypatch: pytest.MonkeyPatch) -> None:
    v4 = frozenset().union(*(needed for _, needed in ISAS.values()))
    monkeypatch.setattr(targets, "_cpu", lambda: ("a CPU", v4 | {"amx_tile", "amx_bf16"}))
    native = resolve_target("cpu")
    assert native.fingerprint["matrix"] == "amx_bf16"
    assert [native.matrix_parts(precision) for precision in ("ieee", "split", "tf32")] == [3, 2, 2]
    assert resolve_target("cpu:isa=x86-64-v4").matrix_parts("split") == 0
    monkeypatch.setattr(targets, "_cpu", lambda: ("a CPU", v4 | {"amx_tile", "amx_int8"}))
    assert "matrix" not in resolve_target("cpu").fingerprint, "what was measured without one stays comparable"


def test_known_targets_resolve_to_themselves() -> None:
    known = known_targets()
    assert known[0].spec == "cpu"
    assert all(resolve_target(target.spec) == target for target in known)


def test_pinned_cpus_are_distinct_and_allowed() -> None:
    allowed = os.sched_getaffinity(0)
    chosen = pinned_cpus(len(allowed))
    assert set(chosen) == allowed and len(chosen) == len(allowed)
    assert pinned_cpus(1)[0] in allowed


def test_hyperthreads_of_one_core_are_used_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for cpu, core in enumerate("0011"):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text("0\n")
        (folder / "core_id").write_text(core + "\n")
    monkeypatch.setattr(targets, "_SYSTEM", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert pinned_cpus(2) in ((0, 2), (0, 1))  # a control group may allow one core's time only
    if resolve_target("cpu").threads == 2:
        assert pinned_cpus(2) == (0, 2) and pinned_cpus(3) == (0, 1, 2)


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingToolError, match="apt-get install g"):
        find_compiler()
    target = resolve_target("cpu")
    assert target.fingerprint["compiler"] == "none"
    assert not target.ceilings


HOLDER = """\
import sys
from evoforge.evaluation.targets import device_lock, resolve_target
with device_lock(resolve_target("cpu:threads=1")):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_measures_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    target = resolve_target("cpu")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="another evoforge process is measuring"), device_lock(target, 0.05):
            pass
        other.stdin.close()
        with device_lock(target, 30.0):
            pass


def test_the_lock_is_re_entrant_within_a_process_and_then_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    target = resolve_target("cpu")
    entered = threading.Event()

    def enter() -> None:
        with device_lock(target, 5.0):
            entered.set()

    with device_lock(target, 1.0):
        with device_lock(target, 1.0):
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join(10.0)
        assert entered.is_set()
    taken = subprocess.run(
        [sys.executable, "-c", HOLDER], input="", capture_output=True, text=True, timeout=30, check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert taken.stdout == "held\n"


def test_ceilings_are_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVOFORGE_CACHE", str(tmp_path))
    target = measure_ceilings(resolve_target("cpu:threads=1"))
    keys = set(target.ceilings)
    assert {"read/dram", "copy/dram", "stream/dram", "2:2/dram", "read/l2", "flops/f32", "flops/f64"} <= keys
    assert all(value > 1e8 for value in target.ceilings.values())
    assert target.ceilings["read/l2"] >= target.ceilings["read/dram"]
    assert target.id == resolve_target("cpu:threads=1").id
    monkeypatch.setenv("PATH", "/nonexistent")  # no compiler: only the cache can answer
    monkeypatch.delenv("CXX", raising=False)
    again = resolve_target("cpu:threads=1")
    assert measure_ceilings(again).ceilings == {}
    monkeypatch.undo()
    monkeypatch.setenv("EVOFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr("evoforge.evaluation.ceilings._build", lambda isa: pytest.fail("measured again"))
    assert measure_ceilings(resolve_target("cpu:threads=1")).ceilings == target.ceilings
