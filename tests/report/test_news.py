from __future__ import annotations

import json

from fake_gateway import SKEWED, FakeQuery
from loop_scene import Scene


def test_news_tell_each_batch_and_each_change_of_a_swap_once_and_no_value() -> None:
    scene = Scene(FakeQuery(values={0: "secret-a", 2: "secret-b"}))
    scene.see(SKEWED, 6)
    told = [query for news in scene.gateway.news for query in json.loads(news)]
    assert [batch["batch"] for query in told for batch in query["batches"]] == list(range(6))
    gains = [swap["gain"] for query in told for swap in query["swaps"]]
    assert gains[0] == "no batch since"
    assert gains[-1].startswith("batches take 0.50")
    assert not any("secret" in news for news in scene.gateway.news)
    assert "secret-a" in str(scene.loop.status())
    [batch] = [b for query in told for b in query["batches"] if b["batch"] == 0]
    assert batch["loads"] == [2.0, 0.0]
    assert batch["hot"][0] == {"hash": 0, "share": 0.4}


def test_a_loop_that_nobody_listens_to_falls_silent() -> None:
    scene = Scene()
    scene.gateway.show = lambda news: False  # type: ignore[method-assign]
    scene.see(SKEWED)
    scene.gateway.show = lambda news: pytest_fails()  # type: ignore[method-assign]
    scene.see(SKEWED, 3)
    assert not scene.loop.status().errors


def pytest_fails() -> bool:
    raise AssertionError("news were sent")


def test_the_last_news_say_that_the_loop_is_over() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.loop.start()
    scene.loop.stop()
    [query] = json.loads(scene.gateway.news[-1])
    assert query["loop"].startswith("the loop is over: stopped")
