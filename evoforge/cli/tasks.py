"""`evoforge tasks check`: is a task fit to be searched?"""

from __future__ import annotations

from typing import Annotated

import typer

from evoforge.cli._options import Inputs, Json, Sets, TargetSpec

__all__ = ["check"]


def check(
    task: Annotated[str, typer.Argument(metavar="TASK.py|pkg.mod:Class")],
    set_: Sets = None,
    input_: Inputs = None,
    target: TargetSpec = "cpu",
    as_json: Json = False,
) -> int:
    """Is a task fit to be searched?

    It must accept its own answers and reject wrong ones. Exits 1 if it is unfit.
    """
    from evoforge.campaign import check_task
    from evoforge.cli._output import emit, working
    from evoforge.evaluation.tasks import load_task, parse_set

    loaded = load_task(task, dict(parse_set(word) for word in set_ or ()), tuple(input_ or ()))
    with working(f"checking {loaded.name}"):
        found = check_task(loaded, target)
    fit = bool(found["fit"])
    if as_json:
        emit(found)
        return 0 if fit else 1
    for row in found["checks"]:
        print(f"{'ok ' if row['ok'] else 'BAD'} {row['workload']}: {row['check']}")
    good = "sound" if found.get("uncovered") else "fit to be searched"
    print(f"{loaded.name} is {good if fit else 'unfit: ' + str(found['reason'])}")
    if found.get("uncovered"):
        print(f"kernels can be judged but not generated: {found['uncovered']}")
    for text in found["notices"]:
        print(text)
    return 0 if fit else 1
