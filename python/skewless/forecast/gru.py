"""The network of Aj-Stream: a GRU encoder, a GRU decoder, and additive attention between them.

Separate from its training, which needs jax: a forecast needs numpy only, and so do weights that were saved.
The equations stand here once. `xp` and `scan` are numpy and a loop when a forecast is made, jax.numpy and
jax.lax.scan when the network is trained.

Paper: Sun, Zhang, Gao, Buyya: "An adaptive load balancing strategy for stateful join operator in skewed data
stream environments", section 3.2, equations 5 to 11. A window is the vector of the shares of all hot keys;
the last place stands for all other keys, so that a window adds up to one. What the paper leaves open, or what
we changed:

- There are biases, and each place of the input is brought to mean 0 and deviation 1 of the training windows.
- The decoder starts from the encoder's last state and from the last window seen.
- The output layer starts from the mean shares of the training windows: untrained, the network says that mean.
  A network that corrects the recent shares instead was tried. It erred less where keys drift, though more
  than an EWMA on each of eight real streams one window ahead, and more than this one where shares follow a
  law. For drift there is the EWMA itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skewless.model.snapshot import Floats

HIDDEN = 32
LENGTH = 12  # windows that the encoder reads
FLOOR = 1e-6  # a share of zero has no logarithm
Weights = Mapping[str, Any]
Scan = Callable[[Callable[[Any, Any], Any], Any, Any, int], Any]


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
    }


def initial(windows: Floats, seed: int, hidden: int = HIDDEN) -> dict[str, Floats]:
    """Weights to start training from."""
    generator = np.random.default_rng(seed)
    weights = {
        name: generator.normal(0.0, 1.0 / np.sqrt(shape[0]), shape) if len(shape) > 1 else np.zeros(shape)
        for name, shape in sizes(windows.shape[1], hidden).items()
    }
    weights["attention_v"] = generator.normal(0.0, 1.0 / np.sqrt(hidden), hidden)
    weights["output"] *= 0.1
    mean = windows.mean(axis=0)
    weights["mean"], weights["deviation"] = mean, np.maximum(windows.std(axis=0), 0.1 * mean + FLOOR)
    weights["output_bias"] = np.log(mean + FLOOR)
    return {name: value.astype(np.float32) for name, value in weights.items()}


def forward(xp: Any, scan: Scan, weights: Weights, windows: Any, horizon: int) -> Any:
    """The logarithms of the next `horizon` windows' shares, from the windows seen. Time comes first in all
    arrays, the place last; between them may be a batch."""
    scaled = (windows - weights["mean"]) / weights["deviation"]
    states = _encoded(scan, xp, weights, scaled)
    keyed = states @ weights["attention_h"]

    def decode(carry: Any, _: Any) -> Any:
        c, y = carry
        c = _cell(xp, c, y @ weights["decoder_input"], weights["decoder_state"], weights["decoder_bias"])
        a = _context(xp, weights, states, keyed, c)
        logs = _log_softmax(
            xp, xp.concatenate([c, a], axis=-1) @ weights["output"] + weights["output_bias"], -1
        )
        return (c, (xp.exp(logs) - weights["mean"]) / weights["deviation"]), logs

    return scan(decode, (states[-1], scaled[-1]), None, horizon)[1]


def numpy_scan(step: Callable[[Any, Any], Any], carry: Any, xs: Any, length: int) -> Any:
    """What `jax.lax.scan` does, for numpy: the last carry, and what the steps gave."""
    found = []
    for time in range(length):
        carry, y = step(carry, None if xs is None else xs[time])
        found.append(y)
    return carry, np.stack(found)


def _encoded(scan: Scan, xp: Any, weights: Weights, windows: Any) -> Any:
    """The encoder's hidden state after each window."""
    state, bias = weights["encoder_state"], weights["encoder_bias"]
    inputs = windows @ weights["encoder_input"]

    def encode(h: Any, from_input: Any) -> Any:
        h = _cell(xp, h, from_input, state, bias)
        return h, h

    return scan(encode, 0.0 * inputs[0, ..., : state.shape[0]], inputs, inputs.shape[0])[1]


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
    scores = xp.tanh(keyed + c @ weights["attention_c"]) @ weights["attention_v"]
    return (xp.exp(_log_softmax(xp, scores, 0))[..., None] * states).sum(0)


def _sigmoid(xp: Any, x: Any) -> Any:
    return 0.5 * (1 + xp.tanh(0.5 * x))  # no overflow


def _log_softmax(xp: Any, x: Any, axis: int) -> Any:
    shifted = x - x.max(axis, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(axis, keepdims=True))
