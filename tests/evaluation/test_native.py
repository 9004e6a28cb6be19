from __future__ import annotations

from evoforge.evaluation.native import digest, native_program


def test_native_programs_are_built_once() -> None:
    first = native_program("launch.c")
    changed = first.stat().st_mtime_ns
    assert native_program("launch.c") == first
    assert first.stat().st_mtime_ns == changed


def test_a_key_tells_where_texts_end() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab", "c") == digest("ab", "c")
