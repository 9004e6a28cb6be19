from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.errors import ReplyError, UsageError
from evoforge.prompts import parse_reply
from evoforge.prompts.reply import MAX_REPLY_CHARS, MAX_SOURCE_BYTES

KERNEL = '#include "evoforge.h"\nint evo_run(const evo_call* call) {\n    return 0;\n}\n'
OTHER = KERNEL.replace("return 0", "return 1")
MODULE = "import triton\n\n\ndef run(a, out):\n    pass\n"


def fenced(text: str, tag: str = "cpp", marks: str = "```") -> str:
    return f"{marks}{tag}\n{text}{marks}\n"


@pytest.mark.parametrize(
    "head",
    [
        "int evo_run(const evo_call* call) // the entry (only)\n{",
        "int evo_run(const evo_call* call /* all (of) it; */) {",
        "auto evo_run(const evo_call* call) noexcept -> int {",
        "int evo_run(const evo_call* call) try {",
    ],
)
def test_an_entry_point_is_known_however_it_is_written(head: str) -> None:
    kernel = KERNEL.replace("int evo_run(const evo_call* call) {", head)
    assert kernel != KERNEL and parse_reply(fenced(kernel), language="cpp").source == kernel


def test_an_entry_point_in_a_comment_is_none() -> None:
    noted = "".join(f"// {line}\n" for line in OTHER.splitlines())
    assert parse_reply(fenced(KERNEL) + fenced(noted), language="cpp").source == KERNEL


@pytest.mark.parametrize(
    ("reply", "source"),
    [
        (fenced(KERNEL), KERNEL),
        (f"Sure! Here it is:\n\n{fenced(KERNEL)}\nHope it helps.", KERNEL),
        (fenced(KERNEL, "c++"), KERNEL),
        (fenced(KERNEL, ""), KERNEL),
        (fenced(KERNEL, "cpp", "~~~"), KERNEL),
        (fenced(KERNEL, "cpp", "`````"), KERNEL),
        (fenced(KERNEL, 'cpp title="kernel.cpp"', "````"), KERNEL),
        (fenced(KERNEL, "{.cpp #kernel}", "~~~"), KERNEL),
        (fenced(KERNEL).replace("\n", "\r\n"), KERNEL),
        (fenced("int helper();\n") + fenced(KERNEL) + fenced("make\n", "sh"), KERNEL),
        (fenced(OTHER) + "Better:\n" + fenced(KERNEL), KERNEL),
        (fenced("evo_run(call) is called by nobody\n", "text") + fenced(KERNEL) + fenced("evo_run\n", ""), KERNEL),
        (fenced("--- a\n+++ b\n" + OTHER, "diff") + fenced(KERNEL) + fenced(OTHER, "diff"), KERNEL),
        (f"```markdown\nHere:\n{fenced(KERNEL)}```\n", KERNEL),
        (
            f"1. The kernel:\n\n    ```cpp\n{''.join('    ' + line for line in KERNEL.splitlines(True))}    ```\n",
            KERNEL,
        ),
        (f"````\n{KERNEL}// ```\n````", KERNEL + "// ```\n"),
        (KERNEL, KERNEL),
        ("Hypothesis: none\n\n" + KERNEL, KERNEL),
        ("\ufeff" + fenced(KERNEL), KERNEL),
        (f"```cpp\n{KERNEL}", KERNEL),
        (fenced("\n\n" + KERNEL + "\n\n"), KERNEL),
    ],
)
def test_a_whole_file_is_found(reply: str, source: str) -> None:
    answer = parse_reply(reply, language="cpp")
    assert (answer.source, answer.kind) == (source, "file")


GLUED = fenced(KERNEL).replace("}\n```", "}```")
QUOTED = "".join(f"> {line}\n" for line in fenced(KERNEL).splitlines())


@pytest.mark.parametrize(
    "reply",
    [
        GLUED,
        f"{GLUED}Hope it helps.",
        f"Here is the kernel: {fenced(KERNEL)}Hope it helps.",
        f"Here is the kernel: ```cpp\n{KERNEL.rstrip()}```\n",
        f"As asked:\n\n{QUOTED}\nHope it helps.",
        f"> Here is the kernel: {QUOTED[2:]}",
        f"```\nHere:\n{fenced(KERNEL)}Done.\n```\n",
        f"```text\nHere:\n\n{fenced(KERNEL)}```\n",
        f"~~~plaintext\n{fenced(KERNEL)}~~~\n",
        f"````\n{fenced(OTHER)}Better:\n{fenced(KERNEL)}````\n",
        f"Use ```x``` or ```\n{GLUED}",
    ],
)
def test_fences_that_are_not_where_they_belong_are_found(reply: str) -> None:
    for cut in (False, True):
        answer = parse_reply(f"Hypothesis: one\n\n{reply}", language="cpp", cut=cut)
        assert (answer.source, answer.kind, answer.hypothesis) == (KERNEL, "file", "one")


@pytest.mark.parametrize("line", ["// as in ```", "> ```cpp", "int x; // see: ```cpp"])
def test_what_looks_like_a_fence_ends_no_half_of_a_kernel(line: str) -> None:
    with pytest.raises(ReplyError, match="inside its code block"):
        parse_reply(f"```cpp\n{KERNEL[:-3]}\n{line}\n", language="cpp")
    whole = KERNEL.replace("    return 0;", f"    {line}\n    return 0;")
    assert parse_reply(fenced(whole), language="cpp").source == whole


def test_a_module_is_found_by_its_run() -> None:
    reply = fenced("run(a, out)  # how it is called\n", "python") + fenced(MODULE, "python")
    assert parse_reply(reply, language="triton").source == MODULE
    with pytest.raises(ReplyError, match=r"defines run, got 1 code block without"):
        parse_reply(fenced(KERNEL), language="triton")
    with pytest.raises(ReplyError, match="ends inside its code block"):
        parse_reply("```python\n" + MODULE.replace("    pass\n", ""), language="triton")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("", "empty reply"),
        (" \n\n", "empty reply"),
        ("I cannot help with that.", "got prose"),
        ("The entry point evo_run(const evo_call* call) { … } would be best.", "got prose"),
        (fenced("int main() {}\n"), "got 1 code block without it"),
        (fenced("a\n") + "```cpp\nint x", "got 2 code blocks without it, the last one cut off"),
        ("```cpp\n" + KERNEL[:-3], "ends inside its code block"),
        ("```cpp\n" + KERNEL[:-3] + "\n/* and", "ends inside its code block"),
        (fenced(OTHER) + "```cpp\n" + KERNEL[:-3], "ends inside its code block"),
        (KERNEL[:-3], "ends inside the kernel"),
        (fenced(KERNEL.replace("0;", "0;\0")), "U\\+0000"),
        (fenced(KERNEL.replace("0;", "0; \x1b[2J")), "U\\+001B"),
        (fenced(KERNEL.replace("0;", "0; // \u202e")), "U\\+202E"),
        (fenced(KERNEL.replace("0;", "0; // \ud800")), "U\\+D800"),
        (fenced(KERNEL + "// é" * MAX_SOURCE_BYTES), "at most 200000 bytes"),
        ("x" * (MAX_REPLY_CHARS + 1), "at most 1000000 characters"),
    ],
)
def test_what_is_no_kernel_is_refused_in_one_sentence(reply: str, words: str) -> None:
    with pytest.raises(ReplyError, match=words) as caught:
        parse_reply(reply, language="cpp")
    assert "\n" not in str(caught.value) and isinstance(caught.value, UsageError)


@pytest.mark.parametrize("tag", ["</think>", "</thinking>  "])
def test_what_was_thought_before_is_no_answer(tag: str) -> None:
    draft = f"Hypothesis: a draft\n{EDIT}```cpp\nint evo_run(const evo_call* call) {{ // unfinished\n{tag}\n"
    answer = parse_reply(draft + "Hypothesis: the answer\n" + EDIT, language="cpp", parent=KERNEL)
    assert (answer.source, answer.kind, answer.hypothesis) == (OTHER, "edits", "the answer")
    assert parse_reply(draft + fenced(KERNEL), language="cpp").source == KERNEL
    assert parse_reply(f"{fenced(KERNEL)}{tag}\n\n", language="cpp").source == KERNEL, "nothing follows"


@pytest.mark.parametrize(
    "end",
    [
        "</think>",
        "So be it.</think> ",
        "</think> or not</thinking>",
        "<<<<<<< SEARCH\n</think>",
        "~~~cpp\nint x;\n </think>",
    ],
)
def test_a_thought_ends_wherever_in_its_line_it_ends(end: str) -> None:
    """Draft and answer change the same line: one after the other they would fit nowhere."""
    reply = f"Hypothesis: a draft\n{EDIT}{end}Hypothesis: the answer\n{EDIT}"
    answer = parse_reply(reply, language="cpp", parent=KERNEL)
    assert (answer.source, answer.kind, answer.hypothesis) == (OTHER, "edits", "the answer")
    assert parse_reply(f"{EDIT}{end}{fenced(KERNEL)}", language="cpp", parent=KERNEL).source == KERNEL


@pytest.mark.parametrize(
    "line", ['    const char* end = "</think>";', "    // a </think> in words", "    /* </think> */"]
)
def test_a_kernel_may_hold_the_end_of_a_thought(line: str) -> None:
    kernel = KERNEL.replace("    return 0;", f"{line}\n    return 0;")
    assert parse_reply(f"I think.\n</think> Now:\n{fenced(kernel)}", language="cpp").source == kernel
    edit = EDIT.replace("    return 1;", f"{line}\n    return 1;")
    answer = parse_reply(edit, language="cpp", parent=KERNEL)
    assert answer.source == KERNEL.replace("    return 0;", f"{line}\n    return 1;")


def test_a_whole_kernel_after_a_stray_mark_counts() -> None:
    reply = "I begin with\n<<<<<<< SEARCH\nbut no: the whole file.\n" + fenced(OTHER)
    assert parse_reply(reply, language="cpp", parent=KERNEL).source == OTHER
    with pytest.raises(ReplyError, match="inside an edit"):
        parse_reply(fenced(OTHER) + EDIT.replace(">>>>>>> REPLACE\n", ""), language="cpp", parent=KERNEL)


@pytest.mark.parametrize(
    "draft",
    [
        "<<<<<<< SEARCH\nan idea\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\nan idea\n<<<<<<< SEARCH\n",
        "<<<<<<< SEARCH\nnot there\n=======\nanother\n>>>>>>> REPLACE\n",
        "<<<<<<< SEARCH\n    return 0;\n=======\n    return 1;\n>>>>>>> REPLACE\n" * 65,
    ],
)
def test_a_whole_kernel_after_broken_edits_counts(draft: str) -> None:
    third = KERNEL.replace("return 0", "return 2")
    for file in (fenced(third), f"```cpp\n{third}"):
        answer = parse_reply(f"Perhaps:\n{draft}No, rather:\n{file}", language="cpp", parent=KERNEL)
        assert (answer.source, answer.kind) == (third, "file")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("```cpp\n" + OTHER, "inside its code block"),  # a function may have been about to follow
        (OTHER, "inside the kernel"),
        ("<<<<<<< SEARCH\n    return 0;\n=======\n    return 1;\n>>>>>>> REPLACE\n", "may lack edits"),
        (fenced(OTHER) + "```cpp\n" + KERNEL, "inside its code block"),
    ],
)
def test_of_a_reply_that_was_cut_off_only_a_closed_file_is_whole(reply: str, words: str) -> None:
    assert parse_reply(reply, language="cpp", parent=KERNEL).source in (KERNEL, OTHER)
    with pytest.raises(ReplyError, match=words):
        parse_reply(reply, language="cpp", parent=KERNEL, cut=True)
    assert parse_reply(fenced(OTHER) + "Because", language="cpp", parent=KERNEL, cut=True).source == OTHER


EDIT = "<<<<<<< SEARCH\n    return 0;\n=======\n    return 1;\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "reply", [EDIT, fenced(EDIT, ""), "Because:\n\n" + fenced(EDIT) + "\nDone.", EDIT.replace("\n", "\r\n")]
)
def test_edits_change_the_parent(reply: str) -> None:
    answer = parse_reply("Hypothesis: one more\n" + reply, language="cpp", parent=KERNEL)
    assert (answer.source, answer.kind, answer.hypothesis) == (OTHER, "edits", "one more")


def test_without_a_parent_edits_are_no_answer() -> None:
    with pytest.raises(ReplyError, match="got prose"):
        parse_reply(EDIT, language="cpp")


def test_a_whole_kernel_before_edits_that_cannot_be_made_counts() -> None:
    third = KERNEL.replace("return 0", "return 2")
    astray = EDIT.replace("return 0", "return 2")  # of the file, not of the parent
    answer = parse_reply(fenced(third) + astray, language="cpp", parent=KERNEL)
    assert (answer.source, answer.kind) == (third, "file")
    for half in (fenced("int x;\n"), f"```cpp\n{third[:-3]}\n"):
        with pytest.raises(ReplyError):
            parse_reply(half + astray, language="cpp", parent=KERNEL)


def test_of_edits_and_a_file_what_comes_last_counts() -> None:
    third = KERNEL.replace("return 0", "return 2")
    assert parse_reply(fenced(third) + EDIT, language="cpp", parent=KERNEL).source == OTHER
    assert parse_reply(EDIT + fenced(third), language="cpp", parent=KERNEL).source == third


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (EDIT.replace("return 0", "return 7"), "edit 1 must match one place of the source, got none"),
        (EDIT[:-20], "ends inside an edit"),
        (EDIT + EDIT, "edit 2 must match"),
        (EDIT.replace("return 1", "return 0"), "change nothing"),
        (EDIT.replace("=======\n", ""), "no '======='"),
        (EDIT.replace("    return 0;\n", ""), "searches for nothing"),
        ("<<<<<<< SEARCH\n" + EDIT, "begins inside another"),
        (EDIT * 65, "at most 64 edits"),
        (EDIT.replace("return 1;", "return 1;\x07"), "U\\+0007"),
        ("<<<<<<< SEARCH\nint evo_run(const evo_call* call) {\n=======\nint go() {\n>>>>>>> REPLACE", "without it"),
    ],
)
def test_edits_that_cannot_be_made_are_refused(reply: str, words: str) -> None:
    with pytest.raises(ReplyError, match=words) as caught:
        parse_reply(reply, language="cpp", parent=KERNEL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "hypothesis"),
    [
        ("Hypothesis: fewer bytes.", "fewer bytes."),
        ("**Hypothesis:** fewer bytes", "fewer bytes"),
        ("> HYPOTHESIS : fewer \x1b[31mbytes\u202e", "fewer [31mbytes"),
        ("- hypothesis: " + "x" * 5000, "x" * 299 + "…"),
        ("My hypothesis: no", ""),
        ("", ""),
    ],
)
def test_the_hypothesis_is_one_bounded_line(line: str, hypothesis: str) -> None:
    assert (
        parse_reply(f"{line}\n{fenced('// Hypothesis: inside' + chr(10) + KERNEL)}", language="cpp").hypothesis
        == hypothesis
    )


pieces = st.sampled_from(
    ["```", "~~~", "```cpp", "```python", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "Hypothesis: x", "", "}", "{",
     "int evo_run(const evo_call* call) {", "def run(a):", "    return 0;", '"""', "/*", "\0", "\r", "# a"]
)  # fmt: skip


@given(st.lists(pieces | st.text(max_size=20), max_size=30), st.sampled_from(["cpp", "cuda", "triton"]), st.booleans())
def test_any_text_gives_an_answer_or_a_refusal(lines: list[str], language: str, edits: bool) -> None:
    try:
        answer = parse_reply("\n".join(lines), language=language, parent=KERNEL if edits else None)
    except ReplyError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert len(answer.source.encode()) <= MAX_SOURCE_BYTES + 1 and len(answer.hypothesis) <= 300
        assert ("evo_run" if language != "triton" else "def run") in answer.source and "\0" not in answer.source


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]), max_size=200), st.integers(3, 8))
def test_any_kernel_in_a_longer_fence_comes_back(text: str, extra: int) -> None:
    source = KERNEL + "// " + text.rstrip() + "\n"
    longest = max((len(run) for run in text.replace("`", " `").split(" ")), default=0)
    marks = "`" * (longest + extra)
    assert parse_reply(f"Words.\n{marks}cpp\n{source}{marks}\n", language="cpp").source == source.rstrip() + "\n"


@pytest.mark.parametrize(
    "unit",
    [
        "evo_run(",
        "evo_run(const evo_call* call) ",
        "`````",
        "```\n",
        "<<<<<<< SEARCH\n",
        "hypothesis:",
        "def run(",
        '"""',
        "/*",
        "(",
        "</think>",
        "</think> ",
        "'''\\",
        "```\n~~~\n",
        "> ```cpp\n",
        "x ```\n",
        "```\n             ```\n",
        "x```",
    ],
)
def test_hostile_repetition_is_read_once(unit: str) -> None:
    """Searching that is not linear would take minutes here."""
    text = "```cpp\nint evo_run(const evo_call* call) {\n" + unit * (900_000 // len(unit))
    for language, reply in (("cpp", text), ("triton", text.replace("int evo_run", "def run"))):
        with contextlib.suppress(ReplyError):
            parse_reply(reply, language=language, parent=KERNEL)
