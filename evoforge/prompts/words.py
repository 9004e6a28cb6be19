"""From records to the lines, fences and tables that templates place.

All text that comes from a task, a kernel, a compiler or a model passes through here: scrubbed,
and either put on one bounded line or fenced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evoforge.core import Cell, Evaluation, Status
from evoforge.prompts.brief import Attempt, Brief, KernelBrief, Send, TaskBrief
from evoforge.prompts.scrub import Identity, one_line, scrub, scrub_source

__all__ = ["KernelWords", "Words", "cell_words", "fence", "near_bound"]

_REASON_CHARS = 3000
_TAGS = {"cpp": "cpp", "cuda": "cuda", "triton": "python"}
_BOUND_NEAR = 0.8


@dataclass(frozen=True)
class KernelWords:
    """One kernel as a template shows it; empty strings are left out."""

    rows: tuple[str, ...]
    reason: str = ""
    source: str = ""


@dataclass(frozen=True)
class Words:
    """Renders parts of a brief; `who` is scrubbed from all of them."""

    who: Identity
    send: Send

    def line(self, text: str, limit: int = 300) -> str:
        """One line, that cannot open a fence, a heading or a tag of its own."""
        return one_line(scrub(text, self.who), limit).replace("```", "'''").replace("~~~", "---").lstrip("#>-*= ")

    def text(self, text: str) -> str:
        """Several lines without headings that could be taken for the message's own, and without open fences."""
        shown = re.sub(r"(?m)^#{1,2}(?=\s)", "###", scrub(text, self.who))
        opened = ""
        for line in shown.split("\n"):
            marks = re.match(r"\s*(`{3,}|~{3,})", line)
            if marks and not opened:
                opened = marks[1]
            elif marks and marks[1].startswith(opened) and line.strip() == marks[1]:
                opened = ""
        return f"{shown}\n{opened}" if opened else shown

    def quoted(self, text: str, limit: int = 300) -> str:
        return f"“{self.line(text, limit).replace('“', chr(39)).replace('”', chr(39))}”"

    def task_source(self, task: TaskBrief) -> str:
        return fence(scrub_source(task.source, "python", self.who), "python") if self.send.task else ""

    def workloads(self, task: TaskBrief) -> list[str]:
        """Whole, however many tensors there are: nothing else says what a kernel gets."""
        return [f"{self.line(name, 60)}: {self.line(text, len(text))}" for name, text in task.workloads.items()]

    def times(self, task: TaskBrief) -> list[str]:
        rows = []
        for name in task.workloads:
            parts = [f"{side} {value:.4g}" for side, value in task.baseline_ms.get(name, {}).items()]
            bound = task.bounds_ms.get(name)
            parts += [f"no kernel can go below {bound:.4g}"] if bound is not None else []
            if parts:
                rows.append(f"{self.line(name, 60)}: {', '.join(parts)}")
        return rows

    def facts(self, task: TaskBrief) -> list[tuple[str, str]]:
        if not self.send.hardware:
            return []
        return [(self.line(name, 60), self.line(value, 300)) for name, value in task.target_facts.items()]

    def kernel(self, kernel: KernelBrief, brief: Brief, *, compiler_facts: bool = False) -> KernelWords:
        """A kernel with its verdict; `compiler_facts` adds what the object and the trace showed."""
        candidate, evaluation = kernel.candidate, kernel.evaluation
        rows = []
        if kernel.cell is not None:
            rows.append(f"cell: {cell_words(kernel.cell, brief.axes)}")
        if evaluation is not None:
            rows += self._verdict(evaluation)
            if compiler_facts:
                rows += _compiler(evaluation.facts)
        if kernel.lower is not None:
            rows.append(f"speed-up over the baseline of which it is sure (95%): {2.0**kernel.lower:.3g}")
        if kernel.hypothesis:
            rows.append(f"its author expected: {self.quoted(kernel.hypothesis)}")
        right = evaluation is not None and evaluation.status.correct
        if kernel.outcome and (right or self.send.kernels):  # else it quotes what a compiler said of the source
            rows.append(f"what came of it: {self.quoted(kernel.outcome)}")
        reason = ""
        if evaluation is not None and evaluation.reason and not evaluation.status.correct and self.send.kernels:
            reason = fence(_middle_cut(scrub(evaluation.reason, self.who), _REASON_CHARS), "text")
        source = ""
        if self.send.kernels:
            text = scrub_source(candidate.source, candidate.language, self.who)
            source = fence(text.strip("\n"), _TAGS.get(candidate.language, "text"))
        return KernelWords(tuple(rows), reason, source)

    def _verdict(self, evaluation: Evaluation) -> list[str]:
        rows = [f"status: {evaluation.status}"]
        if evaluation.params:
            rows.append("parameters: " + ", ".join(f"{key}={value}" for key, value in evaluation.params.items()))
        if evaluation.status is Status.WRONG and evaluation.max_error is not None:
            rows.append(f"largest error: {evaluation.max_error:.3g}")
        for timing in evaluation.timings:
            parts = [f"{timing.latency_ms:.4g} ms"]
            for side in ("eager", "compiled"):
                speedup = timing.speedup(side)
                parts += [f"{speedup:.3g}× {side}"] if speedup is not None else []
            if timing.bound_ms:
                parts.append(near_bound(timing.bound_ms, timing.latency_ms))
            rows.append(f"{self.line(timing.workload, 60)}: {', '.join(parts)}")
        return rows

    def attempt(self, attempt: Attempt) -> str:
        parts = [f"{self.line(attempt.operator, 20)}: {self.line(attempt.status, 30)}"]
        if attempt.over_parent is not None:
            ground = "both confirmed" if attempt.confirmed else "by one trial of each"
            parts.append(f"{2.0**attempt.over_parent:.3g}× as fast as its parent ({ground})")
        elif attempt.objective is not None:
            parts.append(f"{2.0**attempt.objective:.3g}× the baseline (in one trial)")
        if attempt.hypothesis:
            parts.append(f"expected {self.quoted(attempt.hypothesis, 200)}")
        if attempt.reason and self.send.kernels:
            parts.append(f"reason {self.quoted(attempt.reason, 200)}")
        return ", ".join(parts)


def cell_words(cell: Cell, axes: Mapping[str, Sequence[str]]) -> str:
    """``tiling 1 (one level), memory 3 (streaming)``."""
    parts = []
    for (axis, levels), level in zip(axes.items(), cell, strict=True):
        parts.append(f"{axis} {level} ({levels[level]})" if 0 <= level < len(levels) else f"{axis} {level}")
    return ", ".join(parts)


def near_bound(bound_ms: float, latency_ms: float) -> str:
    """How far a time is from its bound, in words."""
    fraction = bound_ms / latency_ms
    if fraction >= _BOUND_NEAR:
        return f"{fraction:.0%} of what the hardware allows: only less work can help much"
    return f"{fraction:.0%} of what the hardware allows"


def fence(text: str, tag: str) -> str:
    """`text` in a fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{tag}\n{text}\n{marks}"


def _middle_cut(text: str, limit: int) -> str:
    """The beginning and the end: the first error names the cause, the last lines count them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def _compiler(facts: Mapping[str, object]) -> list[str]:
    """Numbers that tell what the compiler made and what a traced run fetched; unknown shapes are left out."""
    code, trace = facts.get("object"), facts.get("trace")
    rows = []
    if isinstance(code, Mapping):
        names = {
            "depth": "loop depth",
            "vectors_per_trip": "vectors per trip of the inner loop",
            "accumulators": "independent accumulators",
        }
        parts = [f"{words} {code[key]}" for key, words in names.items() if isinstance(code.get(key), int)]
        parts += ["streaming stores in loops"] if code.get("stream_in_loops") else []
        parts += ["software prefetch in loops"] if code.get("prefetch_in_loops") else []
        moved = code.get("bytes")
        if isinstance(moved, Mapping):
            numbers = {str(key): float(value) for key, value in moved.items() if isinstance(value, int | float)}
            total = sum(numbers.values())
            shares = [f"{value / total:.0%} {key}" for key, value in numbers.items() if value] if total else []
            parts += ["bytes moved: " + ", ".join(shares)] if shares else []
        rows += [f"compiled code: {'; '.join(parts)}"] if parts else []
    if isinstance(trace, Mapping) and isinstance(trace.get("tensors"), Mapping):
        parts = []
        for name, tensor in trace["tensors"].items():
            if isinstance(tensor, Mapping) and tensor.get("lines"):
                misses = tensor.get("read_misses", 0) + tensor.get("write_misses", 0)
                parts.append(f"{name} {misses / tensor['lines']:.2g}")
        rows += (
            [f"lines fetched from beyond the private cache per line, by tensor: {', '.join(parts)}"] if parts else []
        )
    return rows
