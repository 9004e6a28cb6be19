"""YAML from people: plain data, no key twice, numbers as YAML 1.2 has them."""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["read_yaml"]


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice; keep one", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


# Numbers as YAML 1.2 and everybody else writes them: 1e-5 is one, 012 is twelve, 1:30 is text.
_NUMBERS = {
    "tag:yaml.org,2002:int": r"(?:[-+]?[0-9](?:_?[0-9])*|0x[0-9a-fA-F]+|0o[0-7]+)$",
    "tag:yaml.org,2002:float": r"(?:[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN))$",
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list("-+.0123456789"))


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read_yaml(text: str) -> Any:
    """The data of one document.

    Raises:
        yaml.YAMLError: it is no YAML, a value is none of its type (a date 2024-99-99), a key stands twice, or it nests
            too deeply; `problem` says which, `problem_mark` where, as far as known.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        raise
    except (ValueError, RecursionError) as error:
        problem = "values nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise yaml.MarkedYAMLError(problem=problem) from None
