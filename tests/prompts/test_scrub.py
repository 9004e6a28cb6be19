from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoforge.prompts import Identity, scrub, scrub_source
from evoforge.prompts.scrub import one_line

HOME = "/" + "home/ada"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"in {HOME}/net/model.py line 3", "in …/net/model.py line 3"),
        ("/srv/jobs/nightly/out.log", "…/out.log"),
        ("/opt/data/x.bin and ~/notes/a.txt and ~", "…/x.bin and …/a.txt and ~"),
        ("file:///opt/data/x.bin", "…/x.bin"),
        (r"C:\Users\Ada\net\x.py", "…/x.py"),
        ("built on GPU17 by ada <ada@corp.example>", "built on host by user <…>"),
        ("gpu17.corp.example said", "host said"),
        (
            "adagrad keeps, a/b/c keeps, 3 / 4 keeps, and/or keeps",
            "adagrad keeps, a/b/c keeps, 3 / 4 keeps, and/or keeps",
        ),
        ("https://example.org/a/b keeps", "https://example.org/a/b keeps"),
        ("a\x00b\x1b[0m\u202ec\r\nd", "ab[0mc\nd"),
        ("postgresql://evo:hunter2@db/evo, https://bob@x.org/a", "postgresql://…@db/evo, https://…@x.org/a"),
        ("in /Users" + "/bob, -isystem/srv/inc/x.h", "in …, -isystem…/x.h"),
        ("the key is k-123456", "the key is [key]"),
        ("not sk-abcdefghij1234567890 nor AKIAABCDEFGHIJKLMNOP", "not [key] nor [key]"),
        ("key_padding_mask_of_row_0 keeps", "key_padding_mask_of_row_0 keeps"),
        (r"'C:\\Users\\Bob\\deep\\x.pt' C:\Users\Bob", "'…/x.pt' …"),
        (r"\\filer\alice\x and '\\\\filer\\alice\\x'", "…/x and '…/x'"),
        (r"'\\s+\\w+\n' '\\d\\d' keep", r"'\\s+\\w+\n' '\\d\\d' keep"),
        ('"/Users' + '/eve smith" and "/Users' + '/eve smith/x/y.py"', '"…" and "…/y.py"'),
        (r"'C:\Users\Eve Smith\x.py', '~/my notes/a.txt', /opt/eve\ smith/y/z", "'…/x.py', '…/a.txt', …/z"),
        ('"/ n / m" keeps, a /b c/ d keeps', '"/ n / m" keeps, a /b c/ d keeps'),
        ("/opt//eve//y", "…/y"),
        ("ada_ ada2, adaptive and adam keep", "user user, adaptive and adam keep"),
    ],
)
def test_names_and_paths_go(text: str, clean: str, make: SimpleNamespace) -> None:
    got = scrub(text, make.WHO)
    if "home" in text:
        assert "ada" not in got and got.endswith("model.py line 3")
    elif "nightly" in text:
        assert "jobs" not in got and got.endswith("out.log")
    else:
        assert got == clean


def test_the_longer_a_name_the_surer_it_is_one() -> None:
    long = Identity(user="mallory", host="buildfarm3")
    text = "mallory_ mallory2 jobs_mallory Mallory_x buildfarm3_gpu; mallorys keeps"
    assert scrub(text, long) == "user_ user2 jobs_user user_x host_gpu; mallorys keeps"
    short = Identity(user="eve", host="vm")
    assert scrub("eve@vm:/srv/x, vm:/srv/y, ev@vm2", short) == "user@host:…/x, host:…/y, ev@vm2"
    words = "vm = max(v) of EVE_TILE @ vm; q@vm"
    assert scrub(words, short) == words


def test_in_sources_only_comments_and_literals_change() -> None:
    who = Identity(user="scale", host="lanes")
    assert (
        scrub_source('// by scale\nint scale = lanes / 2 / 3; /* lanes */ const char* s = "scale";', "cpp", who)
        == '// by user\nint scale = lanes / 2 / 3; /* host */ const char* s = "user";'
    )
    assert (
        scrub_source('"""By scale,\non lanes."""\nscale = 3  # lanes\nx = \'scale\'\n', "python", who)
        == '"""By user,\non host."""\nscale = 3  # host\nx = \'user\'\n'
    )


def test_a_quotient_is_no_folder() -> None:
    who = Identity(home="/root", cwd="/app", user="ann", host="lanes")
    kernel = "y[i] = x[i]/root + (a + b)/app + n/root; // in /root\n"
    assert scrub_source(kernel, "cpp", who) == kernel.replace("in /root", "in …")


def test_a_kernels_header_stays() -> None:
    who = Identity(home="/srv/ann", cwd="/", user="tile", host="lanes")
    source = "// evoforge: param TILE = 8 in {8, 16}\n//evoforge: require TILE*4 <= L1 /ROWS/COLS\n// of tile\n"
    assert scrub_source(source, "cpp", who) == source.replace("of tile", "of user")
    script = "# evoforge: param TILE = 8 in {8}\n# evoforge: require TILE*4 <= L1 /ROWS/COLS\n"
    assert scrub_source(script, "triton", who) == script


@pytest.mark.parametrize(("mark", "language"), [("//", "cpp"), ("#", "triton")])
def test_remarks_behind_a_kernels_header_are_scrubbed(mark: str, language: str) -> None:
    who = Identity(user="tile", host="lanes")
    source = (
        f"{mark} evoforge: param TILE = 8 in {{8}};  // as in /srv/ann/k.cpp, by tile\n"
        f"{mark} evoforge: require TILE / 2 <= ROWS # on lanes, see /srv/ann/k.cpp\n"
        f"{mark} evoforge: param by tile, in /srv/ann/k.cpp\n"
    )
    shown = source.replace("/srv/ann/k.cpp", "…/k.cpp").replace("by tile", "by user").replace("on lanes", "on host")
    assert scrub_source(source, language, who) == shown


def test_keys_and_own_folders_go_from_code_as_well() -> None:
    who = Identity(home=HOME, secrets=("k-123456",))
    source = f"#include <{HOME}/x.h>\n#define KEY k-123456\n///opt/a/b.txt //opt\nint n = a //opt/b\n;"
    assert scrub_source(source, "cpp", who) == (
        "#include <…/x.h>\n#define KEY [key]\n//…/b.txt //opt\nint n = a //opt/b\n;"
    )


def test_accounts_that_everybody_has_are_words() -> None:
    assert (
        scrub("placement=root on node", Identity(home="/" + "root", user="root", host="node"))
        == "placement=root on node"
    )


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from([" ", "\n", "'", '"', "(", ",", ";", "<", "="]))
def test_home_never_stays(before: str, after: str, edge: str) -> None:
    who = Identity(home=HOME, cwd="/srv/jobs/nightly", user="ada", host="gpu17")
    got = scrub(f"{before}{edge}{HOME}/x{edge}{after}", who)
    assert HOME not in got


@given(st.text(max_size=300), st.sampled_from(["cpp", "triton", "python"]))
def test_any_source_can_be_scrubbed(text: str, language: str) -> None:
    who = Identity(home=HOME, cwd="/srv/jobs/nightly", user="ada", host="gpu17")
    once = scrub_source(text, language, who)
    assert "\x00" not in once


@given(st.text(max_size=400), st.integers(1, 100))
def test_one_line_is_one_bounded_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit and line.splitlines() in ([], [line])


def test_this_process_can_be_told() -> None:
    assert Identity.here().cwd


@pytest.mark.parametrize(
    "text",
    ["g++ -I/srv/acme/turbine/include k.cpp", "-L/opt/acme/lib/x", "/usr/bin:/mnt/acme/secret", "C:/Users/acme/x/y"],
)
def test_paths_behind_options_and_colons_go_too(text: str) -> None:
    assert "acme" not in scrub(text, Identity())
    assert "acme" not in scrub(f"-I{text}", Identity(cwd="/srv/acme/turbine"))
