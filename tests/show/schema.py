"""Checks a document against the part of JSON Schema that docs/show.schema.json uses.

It is stricter than a validator of JSON Schema in one point: a member that the schema does not describe is a problem.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "show.schema.json").read_text())
KEYWORDS = {
    "$schema", "$defs", "title", "description", "$ref", "const", "enum", "anyOf", "type", "items", "properties",
    "required",
}  # fmt: skip
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def problems(value: Any, schema: dict[str, Any] = SCHEMA, where: str = "$") -> list[str]:
    """What does not fit, with its place; empty for a valid document."""
    unknown = set(schema) - KEYWORDS
    assert not unknown, f"the checker knows nothing of {unknown}"
    found: list[str] = []
    if "$ref" in schema:
        found += problems(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], where)
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if "anyOf" in schema and all(problems(value, choice, where) for choice in schema["anyOf"]):
        found.append(f"{where}: {value!r} fits no choice")
    if "type" in schema and not _has_type(value, schema["type"]):
        found.append(f"{where}: {value!r} is no {schema['type']}")
    if isinstance(value, list) and "items" in schema:
        found += [p for i, item in enumerate(value) for p in problems(item, schema["items"], f"{where}[{i}]")]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
        if properties:
            found += [f"{where}: {name} is not described" for name in value if name not in properties]
        for name, item in value.items():
            if name in properties:
                found += problems(item, properties[name], f"{where}.{name}")
    return found


def _has_type(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    if isinstance(value, bool):
        return "boolean" in names
    return isinstance(value, tuple(t for name in names for t in TYPES[name] if name != "boolean"))
