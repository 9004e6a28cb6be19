"""Writes an importable package: kernels, headers, reference, manifest and the small runtime that joins them.

Everything that the package does on a user's machine is in ``templates/export/_runtime.py``, which is
copied as it stands.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import evoforge
from evoforge.core import AXES, Candidate, Cell, Params, Signature, Target, Task, printable
from evoforge.errors import UnsupportedError, UsageError
from evoforge.evaluation.targets import ISAS
from evoforge.evaluation.tasks import apply_overrides, effective_overrides
from evoforge.lowering.ir import Graph
from evoforge.lowering.ranges import accepted
from evoforge.paths import data_dir, include_dir

__all__ = ["FORMAT", "ExportedKernel", "Library", "required_cpu_flags", "write_library"]

FORMAT = "evoforge-library/1"
_LANGUAGE = "cpp"
_BASELINES = {
    "best": "the faster of eager and `torch.compile`",
    "eager": "eager PyTorch alone, which `torch.compile` may beat",
    "compiled": "`torch.compile` alone",
}
_OURS = frozenset(
    ["__init__.py", "_runtime.py", "README.md", "manifest.json", "kernels", "include", "references", "__pycache__"]
)  # what an export consists of
_NOT_SHIPPED = "evoforge_trace.h"  # instruments kernels under judgement; no kernel includes it


@dataclass(frozen=True)
class ExportedKernel:
    """One elite. `objective` and `lower` are log2 speed-ups over the baseline, by which the archive ranks it.

    `speedup` and its bound `speedup_low` are what is claimed of it, where it was measured again; None: the same.
    """

    candidate: Candidate
    params: Params
    cell: Cell
    objective: float
    lower: float
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_eager: float | None = None
    speedup_compiled: float | None = None
    latency_ms: float | None = None
    roofline_fraction: float | None = None
    flags: tuple[str, ...] = ()

    @property
    def claimed(self) -> tuple[float, float]:
        """(bound, speed-up) over the baseline."""
        low = 2.0**self.lower if self.speedup_low is None else self.speedup_low
        return low, 2.0**self.objective if self.speedup is None else self.speedup


@dataclass(frozen=True)
class Library:
    """What goes into the package.

    `compile_flags` are those that the kernels were judged with. `baseline` is what speed-ups are over: ``eager``,
    ``compiled``, or the faster of both (``best``). `graphs` (by workload; none of a task that the lowering does not
    cover) say which inputs are indices.
    """

    campaign: str
    task: Task
    target: Target
    signatures: Mapping[str, Signature]
    kernels: Sequence[ExportedKernel]
    compile_flags: Sequence[str]
    axes: Sequence[str] = AXES
    baseline: str = "best"
    graphs: Mapping[str, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.kernels:
            raise UsageError(
                f"campaign {self.campaign} has no elite to export; "
                f"go on with: evoforge resume {shlex.quote(self.campaign)} --minutes M"
            )
        foreign = {kernel.candidate.language for kernel in self.kernels} - {_LANGUAGE}
        if foreign:
            raise UnsupportedError(f"export covers language {_LANGUAGE}, got {', '.join(sorted(foreign))}")


def required_cpu_flags(target: Target) -> list[str]:
    """The CPU flags (as in /proc/cpuinfo) without which the kernels are not what was measured.

    A ``native`` target stands for the widest named level that its vectors need; instructions beyond
    it that a kernel spells out are refused by the compiler where the CPU lacks them.
    """
    by_width = {ISAS[level][0]: level for level in reversed(list(ISAS))}
    level = target.isa if target.isa in ISAS else by_width.get(target.vector_bytes, "x86-64")
    names = list(ISAS)
    needed: set[str] = set()
    for name in names[: names.index(level) + 1]:
        needed |= ISAS[name][1]
    return sorted(needed)


def write_library(library: Library, folder: str | Path) -> Path:
    """Writes the package into `folder`, whose last part is the name to import it by.

    An earlier export in its place is replaced; anything else that is there is left alone.

    Raises:
        UsageError: a name that cannot be imported, a folder with something else in it, or one that
            cannot be written.
    """
    folder = Path(folder).absolute()
    _check_name(folder.name)
    folder = folder.resolve() if folder.is_symlink() else folder  # what a link leads to is replaced, not the link
    _check_place(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".evoforge-", dir=folder.parent) as work:
            draft = Path(work) / folder.name
            draft.mkdir()
            _fill(library, draft)
            if folder.exists():
                folder.rename(Path(work) / "before")
            try:
                draft.rename(folder)
            except OSError:
                with suppress(OSError):  # the earlier export stays
                    (Path(work) / "before").rename(folder)
                raise
    except OSError as error:
        raise UsageError(
            f"cannot write the library to {folder}: {error.strerror}; give another folder with -o"
        ) from error
    return folder


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        near = re.sub(r"\W", "_", name) or "kernels"
        near = f"kernels_{near}" if not near.isidentifier() or keyword.iskeyword(near) else near
        raise UsageError(f"expected a folder name that Python can import, got {name!r}; use for example -o {near}")
    if name in sys.stdlib_module_names or name in ("torch", "numpy", "evoforge"):
        raise UsageError(f"a package {name!r} would hide the one that is there; use for example -o {name}_kernels")


def _check_place(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"expected a folder at {folder}, there is a file; give another one with -o")
    if not any(folder.iterdir()):
        return
    try:
        earlier = json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        earlier = False
    others = sorted(path.name for path in folder.iterdir() if path.name not in _OURS)
    if not earlier or others:
        found = f" ({', '.join(others[:3])})" if earlier else ""
        raise UsageError(f"{folder} holds something else than an earlier export{found}; give another folder with -o")


def _fill(library: Library, folder: Path) -> None:
    ordered = sorted(library.kernels, key=lambda kernel: (-kernel.lower, kernel.cell))
    workloads = _write_references(library, folder)
    (folder / "kernels").mkdir()
    for kernel in ordered:
        (folder / "kernels" / f"{kernel.candidate.short_id}.cpp").write_text(kernel.candidate.source, encoding="utf-8")
    (folder / "include").mkdir()
    for header in include_dir().glob("*.h"):
        if header.name != _NOT_SHIPPED:
            shutil.copyfile(header, folder / "include" / header.name)
    manifest = _manifest(library, ordered, workloads)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.copyfile(data_dir("templates") / "export" / "_runtime.py", folder / "_runtime.py")
    values = _values(library, ordered, workloads, folder.name)
    for name in ("__init__.py", "README.md"):
        (folder / name).write_text(_render(f"{name}.j2", values), encoding="utf-8")


def _write_references(library: Library, folder: Path) -> list[dict[str, Any]]:
    """One module per workload, with that workload's constants written into it."""
    references = folder / "references"
    references.mkdir()
    (references / "__init__.py").write_text('"""The PyTorch references, one per workload."""\n', encoding="utf-8")
    rows = []
    for index, workload in enumerate(library.task.workloads):
        module = f"w{index}_{re.sub(r'[^0-9A-Za-z_]', '_', workload.name)}"
        source = apply_overrides(library.task.source, effective_overrides(library.task, workload))
        (references / f"{module}.py").write_text(source, encoding="utf-8")
        signature, graph = library.signatures[workload.name], library.graphs.get(workload.name)
        known = accepted(graph) if graph else {}
        ranges = [known.get(spec.name) for spec in signature.inputs]
        rows.append({"name": workload.name, "reference": module, "signature": signature.to_json(), "ranges": ranges})
    return rows


def _manifest(library: Library, ordered: Sequence[ExportedKernel], workloads: list[dict[str, Any]]) -> dict[str, Any]:
    target, task = library.target, library.task
    return {
        "format": FORMAT,
        "evoforge": evoforge.__version__,
        "campaign": library.campaign,
        "task": {
            "name": task.name, "id": task.id, "entry": task.entry,
            "overrides": dict(task.overrides), "source": task.source,
        },
        "target": target.spec,
        "threads": target.threads,
        "isa": target.isa,
        "fingerprint": dict(target.fingerprint),
        "cpu_flags": required_cpu_flags(target),
        "compile_flags": list(library.compile_flags),
        "axes": list(library.axes),
        "baseline": library.baseline,
        "own_references": _have_own_references(task),
        "workloads": workloads,
        "kernels": [_kernel_row(kernel) for kernel in ordered],
    }  # fmt: skip


def _have_own_references(task: Task) -> bool:
    """Whether anything but get_inputs() reads a constant that differs between workloads, as far as the text tells."""
    names = {name for workload in task.workloads for name in workload.overrides}
    body = [one for one in ast.parse(task.source).body if getattr(one, "name", "") != "get_inputs"]
    constants = [one for one in body if isinstance(one, ast.Assign | ast.AnnAssign)]

    def reads(statement: ast.stmt) -> bool:
        return any(
            isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in names
            for one in ast.walk(statement)
        )

    for _ in constants:  # as many as a chain of definitions can have links
        for one in filter(reads, constants):
            names |= {at.id for at in ast.walk(one) if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store)}
    return len(task.workloads) > 1 and any(reads(one) for one in body if one not in constants)


def _kernel_row(kernel: ExportedKernel) -> dict[str, Any]:
    candidate = kernel.candidate
    return {
        "cell": list(kernel.cell),
        "candidate": candidate.id,
        "params": dict(kernel.params),
        "speedup": kernel.claimed[1],
        "speedup_lower": kernel.claimed[0],
        "speedup_eager": kernel.speedup_eager,
        "speedup_compiled": kernel.speedup_compiled,
        "latency_ms": kernel.latency_ms,
        "roofline_fraction": kernel.roofline_fraction,
        "flags": list(kernel.flags),
        "licence": candidate.licence,
        "operator": candidate.operator,
        "meta_prompt": candidate.meta_prompt,
        "model": candidate.model,
        "parents": list(candidate.parents),
    }


def _values(
    library: Library, ordered: Sequence[ExportedKernel], workloads: list[dict[str, Any]], package: str
) -> dict[str, Any]:
    def times(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}×"

    fingerprint = library.target.fingerprint
    return {
        "package": package,
        "count": len(ordered),
        "task": _unquoted(library.task.name),
        "target": library.target.spec,
        "cpu": fingerprint.get("cpu", "unknown CPU"),
        "compiler": fingerprint.get("compiler", "unknown compiler"),
        "campaign": _unquoted(library.campaign),
        "version": evoforge.__version__,
        "axes": ", ".join(library.axes),
        "baseline": _BASELINES[library.baseline],
        "example": tuple(ordered[-1].cell),
        "workloads": ", ".join(f"'{_unquoted(row['name'])}'" for row in workloads),
        "first_reference": workloads[0]["reference"],
        "licences": ", ".join(sorted({kernel.candidate.licence for kernel in ordered})),
        "signatures": [_signature_text(row["name"], library.signatures[row["name"]]) for row in workloads],
        "rows": [
            {
                "cell": " ".join(map(str, kernel.cell)),
                "candidate": kernel.candidate.short_id,
                "speedup": times(kernel.claimed[1]),
                "lower": times(kernel.claimed[0]),
                "eager": times(kernel.speedup_eager),
                "compiled": times(kernel.speedup_compiled),
                "latency": "–" if kernel.latency_ms is None else f"{kernel.latency_ms:.3g} ms",
            }
            for kernel in ordered
        ],
    }


def _unquoted(text: str) -> str:
    """A name as it may stand in a docstring or in a text of Markdown."""
    return re.sub(r"[\"'`\\|]", "_", printable(text))


def _signature_text(name: str, signature: Signature) -> str:
    def shown(specs: Sequence[Any]) -> str:
        return ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in specs) or "none"

    inputs, weights, outputs = map(shown, (signature.inputs, signature.constants, signature.outputs))
    return f"`{_unquoted(name)}`: inputs {inputs}; weights {weights}; outputs {outputs}"


def _render(name: str, values: Mapping[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(data_dir("templates") / "export"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Python and Markdown, not HTML
    )
    return environment.get_template(name).render(values)
