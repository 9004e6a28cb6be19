import pytest

from evoforge.core import redact, without_keys


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


def test_in_program_text_only_what_is_sure_to_be_a_key_goes() -> None:
    text = "key_padding_mask2_of_rows, sk-abcdefghij1234567890 and AKIAABCDEFGHIJKLMNOP; hf_block_size_128_of_rows"
    assert without_keys("hf_abcdefghijkl0123456789, ghp_0123456789abcdefghij") == "[key], [key]"
    shown = "key_padding_mask2_of_rows, [key] and [key]; hf_block_size_128_of_rows"
    assert without_keys(text) == shown


def test_other_words_stay() -> None:
    text = "the server answered 500: task-based kernels, disk-cache miss at 0x7f, max_tokens=64"
    assert redact(text, (), {}) == text
