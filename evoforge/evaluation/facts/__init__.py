"""Raw facts about one kernel, for the descriptor to make a cell of.

Three witnesses, none of which listens to names or comments: the compiled object (`object`), the
parsed text (`syntax`) and one instrumented run on a shrunken workload (`trace`). What a witness
cannot tell is null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evoforge.core import Params, Signature, Target
from evoforge.errors import EvoforgeError
from evoforge.evaluation.build import Builder
from evoforge.evaluation.built import Built

__all__ = ["collect_facts"]


def collect_facts(
    source: str,
    params: Params,
    built: Built,
    signature: Signature,
    trace_signature: Signature | None,
    target: Target,
    builder: Builder,
    *,
    unfused: int | None = None,
) -> dict[str, Any]:
    """Asks every witness about a kernel that was built.

    Args:
        built: the build that is timed; its object is disassembled.
        trace_signature: the shrunken workload for the instrumented run; None: `signature` itself.
        unfused: how many tensor-sized intermediates there are when nothing is fused.

    Returns:
        JSON: ``object``, ``syntax``, ``trace`` (each an object or null), ``unfused``,
        ``vector_bytes``.

    Raises:
        MissingToolError: no compiler, or no objdump.
    """
    from evoforge.evaluation.facts.object import object_facts
    from evoforge.evaluation.facts.syntax import syntax_facts
    from evoforge.evaluation.facts.trace import trace_facts

    path = built.object_path
    return {
        "object": _told(lambda: object_facts(path)) if path else None,
        "syntax": _told(lambda: syntax_facts(source, params, signature, builder)),
        "trace": _told(lambda: trace_facts(source, params, trace_signature or signature, builder)),
        "unfused": unfused,
        "vector_bytes": target.vector_bytes,
    }


def _told(witness: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """What a witness says; None where the text is stranger than it can follow."""
    try:
        return witness()
    except EvoforgeError:
        raise
    except Exception:  # boundary: nobody vetted the text, and a search must not end by it
        return None
