from __future__ import annotations

from aoti_debug.compare.bisect.build_changes import Build, SettingChange, asked_for, suspects


def test_what_was_asked_for_is_left_out_the_likeliest_first() -> None:
    configs = {"cpp.threads": 4, "freezing": True}
    first, second = asked_for(configs)
    assert (first, second) == (
        SettingChange("freezing", None, "asked for"),
        SettingChange("cpp.threads", None, "asked for"),
    )
    assert first.option == "without --inductor-config freezing"
    assert first.applied_to(Build(configs)).configs == {"cpp.threads": 4}


def test_a_suspect_as_a_line_to_paste() -> None:
    change = next(change for change in suspects({}, "cpu") if change.key == "cpp.simdlen")
    assert change.option == "--inductor-config cpp.simdlen=1"
    assert change.applied_to(Build({"freezing": True})).configs == {"freezing": True, "cpp.simdlen": 1}


def test_a_suspect_that_is_harmless_already_is_not_tried() -> None:
    assert "pattern_matcher" not in {change.key for change in suspects({"pattern_matcher": False}, "cpu")}


def test_settings_of_another_device_are_not_tried() -> None:
    assert not [change for change in suspects({}, "cuda") if change.key.startswith("cpp.")]
