"""The network of Aj-Stream: its equations against a plain transcription, its training, its place on a
stream."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewless.errors import ForecastError
from skewless.forecast import Gru, History, forecast, gru, make, training
from skewless.forecast.weights import Arrays, save
from skewless.forecast.worker import Here, Trainer, Worker
from skewless.model.snapshot import Floats

KEYS = 3


def day(windows: int, period: int = 8, seed: int = 0) -> History:
    """Three keys that rise and fall once per period, with the noise of counting."""
    generator, time = np.random.default_rng(seed), np.arange(windows)[:, None]
    weights = np.array([0.3, 0.2, 0.2, 0.3]) * (1 + 0.8 * np.sin(2 * np.pi * time / period + np.arange(4)))
    drawn = [generator.multinomial(5000, row / row.sum()) / 5000 for row in weights]
    return History.of(np.arange(KEYS), np.array(drawn)[:, :KEYS])


def some_weights(seed: int = 1) -> dict[str, Floats]:
    found = gru.initial(day(60).whole, seed, hidden=4)
    generator = np.random.default_rng(seed)
    return {
        name: array + 0.3 * generator.random(array.shape).astype(np.float32) for name, array in found.items()
    }


def plain(weights: dict[str, Floats], windows: Floats, horizon: int) -> list[Floats]:
    """Equations 5 to 11, number by number as the paper prints them, with loops."""
    size = len(weights["attention_v"])

    def sigmoid(x: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-x)))

    def cell(part: str, h: Floats, x: Floats) -> Floats:
        by_x, by_h, bias = (weights[f"{part}_{name}"] for name in ("input", "state", "bias"))
        r, z, last = (slice(i * size, (i + 1) * size) for i in range(3))
        reset = sigmoid(h @ by_h[:, r] + x @ by_x[:, r] + bias[r])
        update = sigmoid(h @ by_h[:, z] + x @ by_x[:, z] + bias[z])
        candidate = np.tanh((reset * h) @ by_h[:, last] + x @ by_x[:, last] + bias[last])
        return np.asarray((1 - update) * h + update * candidate)

    scaled = (windows - weights["mean"]) / weights["deviation"]
    states: list[Floats] = []
    for x in scaled:
        states.append(cell("encoder", states[-1] if states else np.zeros(size), x))
    c, y, found = states[-1], scaled[-1], []
    for _ in range(horizon):
        c = cell("decoder", c, y)
        scores = [
            math.exp(
                np.tanh(h @ weights["attention_h"] + c @ weights["attention_c"]) @ weights["attention_v"]
            )
            for h in states
        ]
        a = sum(score / sum(scores) * h for score, h in zip(scores, states, strict=True))
        raised = np.exp(np.concatenate([c, a]) @ weights["output"] + weights["output_bias"])
        found.append(raised / raised.sum())
        y = (found[-1] - weights["mean"]) / weights["deviation"]
    return found


def test_the_network_computes_the_equations_of_the_paper() -> None:
    windows, weights = day(gru.LENGTH).whole, some_weights()
    found = np.exp(gru.forward(np, gru.numpy_scan, weights, windows, 4))
    assert np.allclose(found, plain(weights, windows, 4), atol=1e-6)
    assert np.allclose(found.sum(axis=1), 1)


def test_numpy_and_jax_compute_the_same_network_on_a_batch_as_on_each_of_it() -> None:
    jax = pytest.importorskip("jax")
    weights, courses = some_weights(), [day(gru.LENGTH, seed=seed).whole for seed in range(3)]
    batch = np.stack(courses, axis=1).astype(np.float32)
    there = np.asarray(gru.forward(jax.numpy, jax.lax.scan, weights, batch, 3))
    for at, course in enumerate(courses):
        here = gru.forward(np, gru.numpy_scan, weights, course.astype(np.float32), 3)
        assert np.allclose(there[:, at], here, atol=1e-4)


def test_trained_on_a_daily_law_the_network_foresees_what_an_ewma_cannot_and_is_the_same_under_a_seed() -> (
    None
):
    pytest.importorskip("jax")
    history = day(120)
    seen = History(history.key_hashes, history.shares[:100])
    one, two = Gru(Here(), seed=3), Gru(Here(), seed=3)
    for network in (one, two):
        network.learn(seen)
        assert network.trainings == 1
    real = history.shares[100:105]
    said = forecast(one, seen, 5).shares
    cheap = forecast(make("ewma"), seen, 5).shares
    assert np.abs(said - real).sum() < 0.5 * np.abs(cheap - real).sum()
    assert np.array_equal(said, forecast(two, seen, 5).shares)


def test_training_in_a_process_of_its_own_gives_weights_and_keeps_them(tmp_path: Path) -> None:
    """The real child process, with a clock that lets its budget be earned at once."""
    pytest.importorskip("jax")
    now, history = [0.0], day(60)
    worker = Worker(budget=1.0, clock=lambda: now[0])
    network = Gru(worker, file=tmp_path / "query.gru")
    network.learn(history)
    assert network.why == "no weights yet"  # nothing was earned yet, so nothing was begun
    now[0] = 60.0
    network.learn(history)
    assert worker._child is not None
    assert np.allclose(network.shares(history, 1), make("ewma").shares(history, 1))  # meanwhile
    worker._child.wait(600)
    network.learn(history)
    assert network.trainings == 1, network.why
    assert worker.cpu_seconds < 60.0
    again = Gru(NoTrainer(), file=tmp_path / "query.gru")
    assert np.array_equal(again.shares(history, 3), network.shares(history, 3))
    network.close()


@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_a_training_that_is_killed_is_a_word_and_can_be_asked_for_again() -> None:
    pytest.importorskip("jax")
    now, history = [0.0], day(60)
    worker = Worker(budget=1.0, clock=lambda: now[0])
    network = Gru(worker)
    now[0] = 60.0
    network.learn(history)
    child = worker._child
    assert child is not None
    child.kill()
    child.wait(600)
    network.learn(history)
    assert network.why.startswith("a training ended with code -9")
    assert worker._child is None
    assert np.array_equal(network.shares(history, 1), make("ewma").shares(history, 1))
    assert worker.ask(history, seed=0)
    worker.close()


class NoTrainer(Trainer):
    """Has nothing; what is asked is counted."""

    def __init__(self, found: Arrays | None = None, error: Exception | None = None) -> None:
        self.found, self.error, self.asked = found, error, 0

    def ask(self, history: History, seed: int) -> bool:
        self.asked += 1
        if self.error:
            raise self.error
        return True

    def collect(self) -> Arrays | None:
        found, self.found = self.found, None
        return found


def nonsense() -> Arrays:
    """Weights that say that the last key has everything."""
    weights = gru.initial(day(60).whole, 0, hidden=4)
    weights["output_bias"] = np.array([0, 0, 50, 0], dtype=np.float32)
    return {**weights, "key_hashes": np.arange(KEYS, dtype=np.int32)}


def test_a_network_that_errs_more_than_the_ewma_is_set_aside() -> None:
    network, history = Gru(NoTrainer(nonsense())), day(90)
    for seen in range(40, 90):
        now = History(history.key_hashes, history.shares[:seen])
        network.learn(now)
        said = network.shares(now, 1)
    assert "set aside" in network.why
    assert not network.trusted
    assert np.array_equal(said, make("ewma").shares(now, 1))


@pytest.mark.parametrize(
    "error", [OSError("no more processes"), ForecastError("a training ended with code -9")]
)
def test_a_training_that_fails_is_a_word_and_the_cheap_forecast_goes_on(error: Exception) -> None:
    network, history = Gru(NoTrainer(error=error)), day(60)
    network.learn(history)
    assert network.why == str(error)
    assert np.array_equal(network.shares(history, 2), make("ewma").shares(history, 2))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: b"", lambda data: data[:6] + b"\x09" + data[7:]]
)
def test_damaged_weights_are_a_word_and_the_cheap_forecast_goes_on(tmp_path: Path, damage: Any) -> None:
    file, history = tmp_path / "query.gru", day(60)
    save(file, nonsense())
    file.write_bytes(damage(file.read_bytes()))
    network = Gru(NoTrainer(), file=file)
    assert str(file) in network.why
    assert "made anew" in network.why
    assert np.array_equal(network.shares(history, 2), make("ewma").shares(history, 2))


def test_a_network_that_returns_no_numbers_is_dropped_and_the_cheap_forecast_goes_on() -> None:
    signs = np.where(np.indices((KEYS + 1, 12)).sum(axis=0) % 2, -1, 1)
    wild = {**nonsense(), "encoder_input": (3e38 * signs).astype(np.float32)}  # inf less inf
    network, history = Gru(NoTrainer(wild)), day(60)
    network.learn(history)
    with np.errstate(all="ignore"):
        assert np.array_equal(network.shares(history, 2), make("ewma").shares(history, 2))
    network.learn(history)
    assert "not finite" in network.why


@pytest.mark.parametrize("windows", [1, gru.LENGTH - 1])
def test_with_fewer_windows_than_the_network_reads_the_cheap_forecast_speaks(windows: int) -> None:
    network, history = Gru(NoTrainer(nonsense())), History(day(60).key_hashes, day(60).shares[:windows])
    network.learn(history)
    assert np.array_equal(network.shares(history, 2), make("ewma").shares(history, 2))


@pytest.mark.parametrize("level", [0.0, 0.25])
def test_a_constant_series_is_what_the_network_says_before_it_learns(level: float) -> None:
    """Its deviation is zero, and of an all-zero series the mean, too."""
    history = History.of(np.arange(KEYS), np.full((60, KEYS), level))
    weights = {**gru.initial(history.whole, 0), "key_hashes": np.arange(KEYS, dtype=np.int32)}
    network = Gru(NoTrainer(weights), aside=math.inf)
    network.learn(history)
    with np.errstate(all="raise"):
        assert np.allclose(network.shares(history, 3), level, atol=0.1)
    assert network.why == f"a network for {KEYS} keys"


@pytest.mark.parametrize("level", [0.0, 0.25])
def test_a_constant_series_can_be_learned(level: float) -> None:
    pytest.importorskip("jax")
    history = History.of(np.arange(KEYS), np.full((60, KEYS), level))
    network = Gru(Here(cpu_seconds=2.0), aside=math.inf)
    network.learn(history)
    assert network.trainings == 1
    assert np.allclose(network.shares(history, 3), level, atol=0.02)


def test_keys_that_the_network_does_not_know_are_the_ewmas() -> None:
    network = Gru(NoTrainer(nonsense()))
    history = History.of([0, 1, 99], day(60).shares)
    network.learn(history)
    said, cheap = network.shares(history, 1)[0], make("ewma").shares(history, 1)[0]
    assert said[2] == cheap[2]
    assert said[0] != cheap[0]


def test_without_the_extra_the_network_is_an_error_with_the_line_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    with pytest.raises(ForecastError, match=r"needs jax and optax .* pip install 'skewless\[forecast\]'"):
        make("gru")
    best = make("best")
    history = day(20)
    best.learn(history)
    assert np.isfinite(best.shares(history, 2)).all()
    assert "gru is left out" in best.why


def test_a_clock_that_jumps_earns_nothing_backwards_and_only_so_much_forwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "find_spec", lambda name: True)
    now = [1000.0]
    worker = Worker(budget=0.5, clock=lambda: now[0])
    assert worker.cpu_seconds == 0.0
    now[0] = 1004.0
    assert worker.cpu_seconds == 2.0
    now[0] = -1e9
    assert worker.cpu_seconds == 2.0
    now[0] = 1e12
    assert worker.cpu_seconds == 60.0
