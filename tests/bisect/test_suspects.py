from __future__ import annotations

from aoti_debug.bisect.suspects import SettingChange, suspects


def test_what_was_asked_for_comes_first_and_is_left_out() -> None:
    configs = {"cpp.threads": 4, "freezing": True}
    first, second, *others = suspects(configs, "cpu")
    assert (first, second) == (
        SettingChange("freezing", None, "asked for"),
        SettingChange("cpp.threads", None, "asked for"),
    )
    assert first.option == "without --inductor-config freezing"
    assert first.applied_to(configs) == {"cpp.threads": 4}
    assert all(change.value is not None for change in others)


def test_a_suspect_as_a_line_to_paste() -> None:
    change = next(change for change in suspects({}, "cpu") if change.key == "cpp.simdlen")
    assert change.option == "--inductor-config cpp.simdlen=1"
    assert change.applied_to({"freezing": True}) == {"freezing": True, "cpp.simdlen": 1}


def test_a_suspect_that_is_harmless_already_is_not_tried() -> None:
    changes = list(suspects({"pattern_matcher": False}, "cpu"))
    assert [change.value for change in changes if change.key == "pattern_matcher"] == [None]


def test_settings_of_another_device_are_not_tried() -> None:
    assert not [change for change in suspects({}, "cuda") if change.key.startswith("cpp.")]
