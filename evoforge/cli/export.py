"""`evoforge export`: a campaign's elites as a Python package."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from evoforge.cli._options import DEFAULT_STORE, Json, StoreUrl

__all__ = ["export"]


def export(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Its last part is the package's name.")],
    store: StoreUrl = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    """Write the elites as a Python package.

    It imports without evoforge and needs torch and g++ only.
    """
    from evoforge.campaign import elites
    from evoforge.cli._output import emit, speedup_text
    from evoforge.core import Signature
    from evoforge.evaluation.build import Builder
    from evoforge.export import ExportedKernel, Library, write_library
    from evoforge.lowering.ir import from_json
    from evoforge.storage import open_store

    with open_store(store, create=False) as opened:
        row = opened.campaign(name)
        kernels = [
            ExportedKernel(
                candidate=opened.candidate(elite["candidate"]),
                params=elite["params"],
                cell=tuple(elite["cell"]),
                objective=elite["objective"],
                lower=elite["lower"],
                speedup=elite["speedup"],
                speedup_low=elite["speedup_low"],
                speedup_eager=elite["speedup_eager"],
                speedup_compiled=elite["speedup_compiled"],
                latency_ms=elite["latency_ms"],
                roofline_fraction=elite["roofline_fraction"],
                flags=tuple(elite["flags"]),
            )
            for elite in elites(name, store)
        ]
        signatures = {key: Signature.from_json(value) for key, value in row.setup.get("signatures", {}).items()}
        library = Library(
            name, row.task, row.target, signatures, kernels, Builder(row.target).flags,
            baseline=row.config.get("baseline", "best"),
            graphs={key: from_json(value) for key, value in row.setup.get("graphs", {}).items()},
        )  # fmt: skip
    folder = write_library(library, output)
    best = max(kernels, key=lambda kernel: kernel.lower)
    if as_json:
        emit({"campaign": name, "path": str(folder), "package": folder.name, "kernels": len(kernels)})
        return
    count = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
    print(f"{folder}: {count}, the fastest {speedup_text(best.claimed[1])}")
    place = shlex.quote(str(folder.parent))
    print(f"try: PYTHONPATH={place} python -c 'import {folder.name}; print({folder.name}.niches())'")
