"""Trains the network of `gru.py` with jax and optax. Nothing else imports either.

Separate from the network because a forecast needs neither, and because this runs in a process of its own:
`python -m skewless.forecast.training FOLDER` reads the task in FOLDER, spends at most the CPU seconds that it
says, and leaves the weights there (`worker.py` starts it).

The paper does not say how it trains. Here: the loss is the cross-entropy of the decoded windows against the
real ones, the decoder fed with its own output; Adam with weight decay; the newest fifth of the samples is
held back, and training stops when they have not got better for some epochs, or when the CPU seconds are
spent. The weights of the best epoch are kept.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from skewless.errors import ForecastError
from skewless.forecast import gru
from skewless.forecast.history import KEPT_WINDOWS
from skewless.forecast.weights import Arrays, pack, unpack
from skewless.model.snapshot import Floats

AHEAD = 10  # windows that the decoder is trained to make
LEAST_WINDOWS = 40
TASK, RESULT = "task", "result"
_BATCH, _EPOCHS, _PATIENCE = 16, 200, 6
_HELD_BACK, _JUDGED, _BETTER = 0.2, 48, 1e-5
_RATE, _DECAY, _CLIP = 5e-3, 1e-4, 1.0
_FIXED = ("mean", "deviation")
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def check_installed() -> None:
    """Complains, with the line that helps, if jax or optax is missing."""
    missing = [name for name in ("jax", "optax") if find_spec(name) is None]
    if missing:
        raise ForecastError(
            f"the forecast 'gru' needs {' and '.join(missing)} to train, which is not installed: "
            "pip install 'skewless[forecast]'. Every other forecast goes without."
        )


def train(windows: Floats, seed: int, cpu_seconds: float) -> dict[str, Floats]:
    """Weights for these windows, each with the shares of all keys and of the rest. The same windows, seed and
    version of jax give the same weights, unless the CPU seconds run out on the way."""
    check_installed()
    if len(windows) < LEAST_WINDOWS:
        raise ForecastError(f"{len(windows)} windows are too few to train on. Give {LEAST_WINDOWS} at least.")
    until = time.process_time() + cpu_seconds
    adam, step, loss = _compiled()
    start = gru.initial(windows, seed)
    fixed = {name: start.pop(name) for name in _FIXED}
    series = np.zeros((KEPT_WINDOWS, windows.shape[1]), dtype=np.float32)  # one shape is compiled once
    series[: len(windows)] = windows[-KEPT_WINDOWS:]
    samples = min(len(windows), KEPT_WINDOWS) - gru.LENGTH - AHEAD + 1
    learned, held = np.split(np.arange(samples), [samples - max(1, int(samples * _HELD_BACK))])

    def judge(weights: Any) -> float:
        return float(loss(weights, fixed, series, np.resize(held, _JUDGED)))

    def improve(weights: Any, state: Any, firsts: Any) -> Any:
        return step(weights, state, fixed, series, firsts)

    found = _until_no_better((start, adam.init(start)), improve, judge, learned, seed, until)
    return {name: np.asarray(value) for name, value in {**found, **fixed}.items()}


@cache
def _compiled() -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """Adam, one step of it, and the loss of the samples that begin at these windows of the series."""
    import jax
    import jax.numpy as jnp
    import optax

    def loss(weights: Any, fixed: Any, series: Any, firsts: Any) -> Any:
        spans = series[firsts[None, :] + np.arange(gru.LENGTH + AHEAD)[:, None]]
        logs = gru.forward(jnp, jax.lax.scan, {**weights, **fixed}, spans[: gru.LENGTH], AHEAD)
        return -(spans[gru.LENGTH :] * logs).sum(-1).mean()

    adam = optax.chain(optax.clip_by_global_norm(_CLIP), optax.adamw(_RATE, weight_decay=_DECAY))

    def step(weights: Any, state: Any, fixed: Any, series: Any, firsts: Any) -> Any:
        slope = jax.grad(loss)(weights, fixed, series, firsts)
        updates, state = adam.update(slope, state, weights)
        return optax.apply_updates(weights, updates), state

    return adam, jax.jit(step), jax.jit(loss)


def _until_no_better(
    now: tuple[Any, Any],
    step: Callable[[Any, Any, Any], tuple[Any, Any]],
    judge: Callable[[Any], float],
    samples: Any,
    seed: int,
    until: float,
) -> Any:
    """Epoch after epoch over the samples, in batches of one size; the weights that were judged best."""
    generator = np.random.default_rng(seed)
    best, found, since = judge(now[0]), now[0], 0
    for _ in range(_EPOCHS):
        order = generator.permutation(samples)
        for first in range(0, max(1, len(order) - _BATCH + 1), _BATCH):
            now = step(*now, np.resize(order[first : first + _BATCH], _BATCH))
            if time.process_time() > until:
                break
        value = judge(now[0])
        since = 0 if value < best - _BETTER else since + 1
        best, found = (value, now[0]) if since == 0 else (best, found)
        if since > _PATIENCE or time.process_time() > until:
            return found
    return found


def run(task: Arrays) -> dict[str, Any]:
    """The task as bytes carry it: windows, key hashes, and (seed, CPU seconds)."""
    seed, cpu_seconds = task["settings"].tolist()
    weights = train(task["windows"], int(seed), cpu_seconds)
    return {**weights, "key_hashes": task["key_hashes"], "cpu_seconds": np.array([time.process_time()])}


def _main(folder: Path) -> None:
    """Last in every queue, and ended by the system if it does not end by itself."""
    task = unpack((folder / TASK).read_bytes())
    if hasattr(os, "nice"):
        os.nice(15)
    try:
        import resource

        most = int(3 * task["settings"][1]) + 30
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    except (ImportError, ValueError, OSError):
        pass  # the loop over the epochs keeps the time, too
    hidden = folder / f".{RESULT}"
    hidden.write_bytes(pack(run(task)))
    hidden.rename(folder / RESULT)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
