"""YAML from people: plain data, no key twice."""

from __future__ import annotations

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
