"""The network of Aj-Stream: a GRU encoder, a GRU decoder, and additive attention between them.

Separate from its training, which needs jax: a forecast needs numpy only, and so do weights that were saved.
The equations stand here once. `xp` is numpy when a forecast is made, and jax.numpy when the network is
trained.

Paper: Sun, Zhang, Gao, Buyya: "An adaptive load balancing strategy for stateful join operator in skewed data
stream environments", section 3.2, equations 5 to 11. A window is the vector of the shares of all hot keys;
the last place stands for all other keys, so that a window adds up to one. What the paper leaves open, or what
we changed:

- There are biases, and each place of the input is brought to mean 0 and deviation 1 of the training windows.
- The decoder starts from the encoder's last state and from the last window seen.
- With `anchored` weights the output layer corrects the logarithm of the recent shares instead of making
  shares from nothing: untrained, the network then says what an EWMA says. Without, it is the paper's model;
  the evidence page compares both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skewless.model.snapshot import Floats

HIDDEN = 32
LENGTH = 12  # windows that the encoder reads
FLOOR = 1e-6  # a share of zero has no logarithm
_FADE = 0.5  # of the recent shares that anchored weights start from, per window
Weights = Mapping[str, Any]


def sizes(places: int, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """The shape of each array of weights, for windows of so many places."""
    cell = {"input": (places, 3 * hidden), "state": (hidden, 3 * hidden), "bias": (3 * hidden,)}
    return {
        **{f"encoder_{name}": shape for name, shape in cell.items()},
        **{f"decoder_{name}": shape for name, shape in cell.items()},
        "attention_h": (hidden, hidden),
        "attention_c": (hidden, hidden),
        "attention_v": (hidden,),
        "output": (2 * hidden, places),
        "output_bias": (places,),
        "mean": (places,),
        "deviation": (places,),
        "anchored": (1,),
    }


def initial(windows: Floats, seed: int, anchored: bool, hidden: int = HIDDEN) -> dict[str, Floats]:
    """Weights to start training from. The output layer starts from the mean shares of the windows, or with
    `anchored` from no correction at all."""
    generator = np.random.default_rng(seed)
    weights = {
        name: generator.normal(0.0, 1.0 / np.sqrt(shape[0]), shape) if len(shape) > 1 else np.zeros(shape)
        for name, shape in sizes(windows.shape[1], hidden).items()
    }
    weights["attention_v"] = generator.normal(0.0, 1.0 / np.sqrt(hidden), hidden)
    weights["output"] *= 0.1
    mean = windows.mean(axis=0)
    weights["mean"], weights["deviation"] = mean, np.maximum(windows.std(axis=0), 0.1 * mean + FLOOR)
    weights["anchored"] = np.array([float(anchored)])
    if not anchored:
        weights["output_bias"] = np.log(mean + FLOOR)
    return {name: value.astype(np.float32) for name, value in weights.items()}


def forward(xp: Any, weights: Weights, windows: Any, horizon: int) -> Any:
    """The logarithms of the next `horizon` windows' shares, from the windows seen: [..., time, place]."""
    scaled = (windows - weights["mean"]) / weights["deviation"]
    states = _encoded(xp, weights, scaled)
    keyed = states @ weights["attention_h"]
    start = weights["anchored"] * xp.log(_recent(windows) + FLOOR)
    c, y, steps = states[..., -1, :], scaled[..., -1, :], []
    for _ in range(horizon):
        c = _cell(xp, c, y @ weights["decoder_input"], weights["decoder_state"], weights["decoder_bias"])
        a = _context(xp, weights, states, keyed, c)
        logits = start + xp.concatenate([c, a], axis=-1) @ weights["output"] + weights["output_bias"]
        steps.append(_log_softmax(xp, logits))
        y = (xp.exp(steps[-1]) - weights["mean"]) / weights["deviation"]
    return xp.stack(steps, axis=-2)


def _recent(windows: Any) -> Any:
    """The windows' shares, each counting half the one after it."""
    length = windows.shape[-2]
    fade = _FADE ** np.arange(length - 1, -1, -1.0)
    return (windows * (fade / fade.sum())[:, None].astype(np.float32)).sum(-2)


def _encoded(xp: Any, weights: Weights, windows: Any) -> Any:
    """The encoder's hidden state after each window."""
    state, bias = weights["encoder_state"], weights["encoder_bias"]
    inputs = windows @ weights["encoder_input"]
    h, states = 0.0 * inputs[..., 0, : state.shape[0]], []
    for time in range(windows.shape[-2]):
        h = _cell(xp, h, inputs[..., time, :], state, bias)
        states.append(h)
    return xp.stack(states, axis=-2)


def _cell(xp: Any, h: Any, from_input: Any, state: Any, bias: Any) -> Any:
    """One step of a GRU, equations 5 to 8. `from_input` is the part of W [h, x] that comes from x."""
    size = state.shape[0]
    parts = from_input + bias
    gates = _sigmoid(xp, parts[..., : 2 * size] + h @ state[:, : 2 * size])
    r, z = gates[..., :size], gates[..., size:]
    candidate = xp.tanh(parts[..., 2 * size :] + (r * h) @ state[:, 2 * size :])
    return (1 - z) * h + z * candidate


def _context(xp: Any, weights: Weights, states: Any, keyed: Any, c: Any) -> Any:
    """The encoder's states, weighted by how much the decoder's state attends to each: equations 9 to 11."""
    scores = xp.tanh(keyed + (c @ weights["attention_c"])[..., None, :]) @ weights["attention_v"]
    attention = xp.exp(_log_softmax(xp, scores))
    return (attention[..., None] * states).sum(-2)


def _sigmoid(xp: Any, x: Any) -> Any:
    return 0.5 * (1 + xp.tanh(0.5 * x))  # no overflow


def _log_softmax(xp: Any, x: Any) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))
