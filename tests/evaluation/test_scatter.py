from __future__ import annotations

from pathlib import Path

import pytest

from evoforge.core import Candidate, Status, Target
from evoforge.evaluation.judge import Judge
from evoforge.evaluation.tasks import load_task
from evoforge.evaluation.verify import SLOW_SCATTER

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return []
"""
KERNEL = """#include "evoforge.h"
extern "C" int evo_run(const evo_call* call) {
    const float* x = EVO_IN(float, 0);
    float* out = EVO_OUT(float, 0);
    for (int64_t i = 0; i < EVO_SIZE(in0, 0) * EVO_SIZE(in0, 1); i++) out[i] = x[i] + 1.0f;
    return 0;
}
"""


THREADED = KERNEL.replace("for (", "\n#pragma omp parallel for\nfor (", 1)


@pytest.mark.parametrize(("source", "threads"), [(KERNEL, False), (THREADED, True)])
def test_what_writing_costs_is_measured_before_a_kernel_is_timed(
    tmp_path: Path, one_thread: Target, source: str, threads: bool
) -> None:
    path = tmp_path / "plus_one.py"
    path.write_text(TASK)
    with Judge(load_task(str(path)), one_thread, seed=1) as judge:
        judge.open()
        judge.wait_compiled(0.0)
        (material,) = judge._stand.materials.values()
        assert material.scattered_bytes_per_s == {}
        found = judge.trial(Candidate("cpp", source), {})
        assert found.status in (Status.CORRECT, Status.TIMING_SUSPECT)
        known = dict(material.scattered_bytes_per_s)
        assert set(known) == {threads}
        assert known[threads] >= SLOW_SCATTER
        judge.trial(Candidate("cpp", source.replace("1.0f", "1.f")), {})
        assert material.scattered_bytes_per_s == known
