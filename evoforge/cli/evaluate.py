"""`evoforge evaluate`: judge one kernel, no campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from evoforge.cli._options import Inputs, Json, Sets, TargetSpec
from evoforge.errors import UsageError

__all__ = ["evaluate"]


def evaluate(
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL_FILE")],
    task: Annotated[str, typer.Option(metavar="TASK.py", help="What the kernel should compute.")],
    set_: Sets = None,
    input_: Inputs = None,
    target: TargetSpec = "cpu",
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A value for a parameter of the kernel; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the inputs.", min=0, max=2**63 - 1)] = 0,
    as_json: Json = False,
) -> int:
    """Judge one kernel against a task.

    Is it correct, how fast is it, which cell is it in? Exits 0 if the kernel is correct, else 1.
    """
    from evoforge.campaign import evaluate_kernel, report
    from evoforge.cli._output import emit, working
    from evoforge.evaluation.tasks import load_task, parse_set

    overrides = dict(parse_set(word) for word in set_ or ())
    loaded = load_task(task, overrides, tuple(input_ or ()))
    values = dict(_param(word) for word in param or ())
    with working(f"judging {kernel.name} against {loaded.name}"):
        evaluation, cell = evaluate_kernel(kernel, loaded, target, params=values, seed=seed)
    found = report(evaluation, cell)
    if as_json:
        emit(found)
    else:
        _print(found)
    return 0 if evaluation.status.correct else 1


def _param(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    try:
        return name.strip(), int(value)
    except ValueError:
        raise UsageError(f"expected --param NAME=INTEGER, got {text!r}{'' if equals else ' (no =)'}") from None


def _print(report: dict[str, Any]) -> None:
    from evoforge.cli._output import cell_text, ms_text, number_text, params_text, speedup_text

    print(f"{report['status']}{': ' + report['reason'] if report['reason'] else ''}")
    if report["latency_ms"] is not None:
        print(
            f"{ms_text(report['latency_ms'])} · eager {speedup_text(report['speedup_eager'])} · "
            f"compiled {speedup_text(report['speedup_compiled'])} · roofline {number_text(report['roofline_fraction'])}"
        )
    if report["speedup_hot"] is not None or report["speedup_cold"] is not None:
        print(f"hot {speedup_text(report['speedup_hot'])} · cold {speedup_text(report['speedup_cold'])}")
    if report["max_error"] is not None:
        print(f"largest error {report['max_error']:.3g}, on inputs of every scale")
    if report["cell"] is not None:
        print(f"cell {cell_text(report['cell'])} (tiling, memory, fusion)")
    if report["params"]:
        print(f"params {params_text(report['params'])}")
    if report["flags"]:
        print(f"flags {' '.join(report['flags'])}")
