from __future__ import annotations

from pathlib import Path

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


def test_what_writing_costs_is_measured_before_a_kernel_is_timed(tmp_path: Path, one_thread: Target) -> None:
    path = tmp_path / "plus_one.py"
    path.write_text(TASK)
    with Judge(load_task(str(path)), one_thread, seed=1) as judge:
        judge.open()
        judge.wait_compiled(0.0)
        (material,) = judge._stand.materials.values()
        assert material.scattered_bytes_per_s is None
        found = judge.trial(Candidate("cpp", KERNEL), {})
        assert found.status in (Status.CORRECT, Status.TIMING_SUSPECT)
        known = material.scattered_bytes_per_s
        assert known is not None
        assert known >= SLOW_SCATTER
        judge.trial(Candidate("cpp", KERNEL.replace("1.0f", "1.f")), {})
        assert material.scattered_bytes_per_s == known
