"""The network of `gru.py` on a stream that goes on: when it is trained, when it is believed, when set aside.

Separate from the network, which is a function. Until there are weights, and wherever the network does not
know a key, the EWMA speaks.

- It is trained when there are windows enough, and again after `RETRAIN` windows more.
- It is judged beside the EWMA, window by window. While it errs more it is set aside: its keys have cooled, or
  their law has changed. It comes back when it errs less, or with the next training. Weights that a file
  brought must prove themselves in the same way.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from skewless.errors import ForecastError
from skewless.forecast import gru
from skewless.forecast.ewma import Ewma
from skewless.forecast.forecaster import Forecaster
from skewless.forecast.history import History
from skewless.forecast.score import Scored, on
from skewless.forecast.training import LEAST_WINDOWS
from skewless.forecast.weights import Arrays, load, save
from skewless.forecast.worker import Trainer
from skewless.model.snapshot import Floats

RETRAIN = 40  # windows after which weights are made anew
TRIED = 5  # windows before weights are judged
ASIDE = 1.02  # times the EWMA's error


class Gru(Forecaster):
    """`file` keeps the weights over restarts; without one they are made anew. The network is set aside while
    it errs more than `aside` times the EWMA; infinity: never."""

    name = "gru"

    def __init__(
        self,
        trainer: Trainer,
        *,
        seed: int = 0,
        file: Path | None = None,
        aside: float = ASIDE,
    ) -> None:
        self._trainer, self._seed, self._file = trainer, seed, file
        self._weights: Arrays | None = None
        self._most = aside
        self._cheap, self._net = Scored(Ewma()), Scored(_Net(None))
        self._since = RETRAIN  # windows since weights were asked for
        self._trouble = ""
        self.trainings = 0
        if file is not None:
            self._read(file)
        self.why = self._words()

    @property
    def trusted(self) -> bool:
        """Whether the network speaks, and not the EWMA."""
        return self._weights is not None and not self._is_aside()

    def learn(self, history: History) -> None:
        self._cheap.learn(history)
        self._net.learn(history)
        self._since += 1
        try:
            self._train(history)
        except (ForecastError, OSError) as error:  # the EWMA, or the network as it is, goes on
            self._trouble = str(error)
        self.why = self._words()

    def shares(self, history: History, horizon: int) -> Floats:
        cheap = self._cheap.forecast(history, horizon).shares
        if self._weights is None:
            return cheap
        try:
            net = self._net.forecast(history, horizon).shares
        except ForecastError as error:
            self._weights, self._trouble = None, str(error)
            return cheap
        return cheap if self._is_aside() else net

    def close(self) -> None:
        self._trainer.close()

    def _is_aside(self) -> bool:
        net, cheap = self._net.error, self._cheap.error
        if self._weights is None or net is None or cheap is None or self._net.windows < TRIED:
            return False
        return net > self._most * cheap

    def _words(self) -> str:
        if self._trouble or self._weights is None:
            return self._trouble or "no weights yet"
        if self._is_aside():
            return f"set aside: the network erred by {self._net.error:.1%}, the EWMA {self._cheap.error:.1%}"
        return f"a network for {len(self._weights['key_hashes'])} keys"

    def _train(self, history: History) -> None:
        """Takes what was trained, and asks for more where it is time."""
        self._collect()
        due = self._since >= RETRAIN and history.windows >= LEAST_WINDOWS
        if due and self._trainer.ask(history, self._seed):
            self._since = 0
            self._collect()

    def _collect(self) -> None:
        if (weights := self._trainer.collect()) is not None:
            self._take(weights)
            self.trainings += 1
            if self._file is not None:
                save(self._file, weights)

    def _take(self, weights: Arrays) -> None:
        self._weights, self._net, self._trouble = weights, Scored(_Net(weights)), ""

    def _read(self, file: Path) -> None:
        try:
            if (weights := load(file)) is not None:
                self._take(weights)
        except ForecastError as error:
            self._trouble = str(error)


class _Net(Forecaster):
    """What the weights say of the keys they know, and the EWMA of the others."""

    name = "gru"

    def __init__(self, weights: Arrays | None) -> None:
        self._weights = weights

    def shares(self, history: History, horizon: int) -> Floats:
        found = Ewma().shares(history, horizon)
        if self._weights is None or history.windows < gru.LENGTH:
            return found
        keys = self._weights["key_hashes"]
        seen = np.stack([on(keys, history.key_hashes, row) for row in history.shares[-gru.LENGTH :]])
        rest = np.maximum(0.0, 1.0 - seen.sum(axis=1, keepdims=True))
        windows = np.concatenate([seen, rest], axis=1).astype(np.float32)
        logs = gru.forward(np, gru.numpy_scan, self._weights, windows, horizon)
        _, at, where = np.intersect1d(history.key_hashes, keys, assume_unique=True, return_indices=True)
        found[:, at] = np.exp(logs)[:, where]
        return found
