import pytest

from evoforge.llm import redact


def test_given_values_and_those_of_the_environment_go() -> None:
    environ = {"ACME_API_KEY": "tr0ub4dor&3", "MY_SECRET": "hunter22", "HOME_TOKEN": "abc", "PATH": "kernelpath"}
    text = redact("tr0ub4dor&3 hunter22 zzyzx-99 abc kernelpath", ["zzyzx-99", ""], environ)
    assert text == "[key] [key] [key] abc kernelpath"


def test_a_key_within_a_key_goes_whole() -> None:
    assert redact("abcdef123456", ["abcdef", "abcdef123456"], {}) == "[key]"


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcDEF012345", "sk-ant-api03-aaaa_bbbb", "sk-abc***********************wxyz", "gsk_abcdefgh1234",
        "AIzaSyA-1234567890abcdef", "hf_abcdefghijkl", "AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxw",
        "xai-0123456789", "nvapi-0123456789",
    ],
)  # fmt: skip
def test_what_looks_like_a_key_goes(key: str) -> None:
    assert redact(f"Incorrect API key provided: {key}. See the page.", (), {}).count(key[4:]) == 0
    assert key[4:] not in redact(f"header 'Authorization: Bearer {key}' refused", (), {})
    assert key[4:] not in redact(f"got {key}", (), {})


def test_other_words_stay() -> None:
    text = "the server answered 500: task-based kernels, disk-cache miss at 0x7f, max_tokens=64"
    assert redact(text, (), {}) == text
