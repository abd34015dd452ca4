from __future__ import annotations

import logging

import pytest

from skewless.control.troubles import KEPT_CHARACTERS, KEPT_KINDS, Backoff, Troubles, words_of


def test_each_kind_of_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles("query clicks")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            troubles.note(ValueError("one"))
            troubles.note(KeyError("two"))
    assert [record.getMessage() for record in caplog.records] == [
        "query clicks: nothing was changed: ValueError: one",
        "query clicks: nothing was changed: KeyError: 'two'",
    ]
    assert troubles.counts == {"ValueError: one": 5, "KeyError: 'two'": 5}


def test_messages_that_never_come_twice_do_not_pile_up(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles("the loop")
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            troubles.note(ValueError(f"object o{number}"))
    assert len(troubles.counts) == KEPT_KINDS + 1
    assert sum(troubles.counts.values()) == 1000
    assert len(caplog.records) == KEPT_KINDS + 1


def test_what_was_counted_elsewhere_is_taken_over() -> None:
    troubles = Troubles("the loop")
    troubles.note(ValueError("a"))
    troubles.absorb({"ValueError: a": 2, "KeyError: b": 3})
    assert troubles.counts == {"ValueError: a": 3, "KeyError: b": 3}


def test_a_java_stack_is_cut_to_its_first_words() -> None:
    error = RuntimeError(
        "An error occurred while calling z:publish.\n: java.io.IOException: full\n\tat a.b.C\n\tat d.e.F"
    )
    assert (
        words_of(error)
        == "RuntimeError: An error occurred while calling z:publish. : java.io.IOException: full"
    )
    assert len(words_of(RuntimeError("x" * 10_000))) == KEPT_CHARACTERS
    assert words_of(RuntimeError()) == "RuntimeError: "


def test_waits_double_up_to_a_minute_and_start_again_after_a_success() -> None:
    backoff = Backoff(lambda: 100.0)
    waits = []
    for _ in range(40):
        backoff.failed()
        waits.append(backoff.seconds_left)
    assert waits[:6] == [2, 4, 8, 16, 32, 60]
    assert waits[-1] == 60
    backoff.succeeded()
    assert backoff.seconds_left == 0
