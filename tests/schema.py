"""Checks a document against the part of JSON Schema that the schemas in docs/ use.

It is stricter than a validator of JSON Schema in one point: a member that the schema does not describe is a problem.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
SCHEMA: dict[str, Any] = json.loads((DOCS / "show.schema.json").read_text())
TRIAGE: dict[str, Any] = json.loads((DOCS / "triage.schema.json").read_text())
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


def problems(
    value: Any, schema: dict[str, Any] = SCHEMA, where: str = "$", root: dict[str, Any] | None = None
) -> list[str]:
    """What does not fit, with its place; empty for a valid document. `root`: whose $defs count, if not `schema`'s."""
    root = schema if root is None else root
    unknown = set(schema) - KEYWORDS
    assert not unknown, f"the checker knows nothing of {unknown}"
    found: list[str] = []
    if "$ref" in schema:
        found += problems(value, _referenced(schema["$ref"], root), where, root)
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if "anyOf" in schema and all(problems(value, choice, where, root) for choice in schema["anyOf"]):
        found.append(f"{where}: {value!r} fits no choice")
    if "type" in schema and not _has_type(value, schema["type"]):
        found.append(f"{where}: {value!r} is no {schema['type']}")
    if isinstance(value, list) and "items" in schema:
        found += [p for i, item in enumerate(value) for p in problems(item, schema["items"], f"{where}[{i}]", root)]
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
        if properties:
            found += [f"{where}: {name} is not described" for name in value if name not in properties]
        for name, item in value.items():
            if name in properties:
                found += problems(item, properties[name], f"{where}.{name}", root)
    return found


def _referenced(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    if reference == "#":
        return root
    found: dict[str, Any] = root["$defs"][reference.removeprefix("#/$defs/")]
    return found


def _has_type(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    if isinstance(value, bool):
        return "boolean" in names
    return isinstance(value, tuple(t for name in names for t in TYPES[name] if name != "boolean"))
