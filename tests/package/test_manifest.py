from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package import manifest
from aoti_debug.package.manifest import OperatorSchema
from aoti_debug.package.pt2 import trust
from tests.factories import make_manifest
from tests.paths import TESTS


def test_operators_are_found_under_both_spellings() -> None:
    schema = OperatorSchema("mylib.op.default", (), returns=1)
    package = replace(make_manifest(), operators=(schema,))
    assert package.operator("mylib::op.default") is schema
    assert package.operator("mylib.op.default") is schema
    assert package.operator("mylib::op.out") is None


def test_another_format_is_named_on_one_short_line() -> None:
    with pytest.raises(ArtifactError, match=r"^the manifest has format 0; this version reads format \d+$"):
        manifest.from_json('{"format": 0}')
    with pytest.raises(ArtifactError) as raised:
        manifest.from_json('{"format": "a\\n' + "b" * 5000 + '"}')
    assert str(raised.value).startswith("the manifest has format a\\nbbb")
    assert len(str(raised.value)) < 200


def test_the_same_text_is_parsed_once() -> None:
    text = make_manifest().json_text
    assert manifest.from_json(text) is manifest.from_json(text)
    assert manifest.from_json(text.encode()) == manifest.from_json(text)


def test_the_hash_is_that_of_the_text() -> None:
    one = make_manifest()
    assert one.sha256 == hashlib.sha256(one.json_text.encode()).hexdigest()
    assert replace(one, model="other").sha256 != one.sha256


def test_what_an_older_version_made_here_is_still_made_here() -> None:
    text = (TESTS / "golden/manifests/older.json").read_bytes()  # it has fewer members than this version writes
    older = manifest.from_json(text)
    assert older.sites[0].kernel == "aoti_torch_cpu_addmm_out"
    assert older.json_text.encode() == text
    assert not trust.is_made_here(older, (), ())
    trust.keep_hash("manifest", hashlib.sha256(text).hexdigest())
    assert trust.is_made_here(older, (), ())
    assert not trust.is_made_here(replace(older, level=1), (), ())
