from __future__ import annotations

import pytest

from skewless.errors import SettingError
from skewless.policies import Limits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_imbalance", -0.1),
        ("max_imbalance", float("nan")),
        ("max_imbalance", float("inf")),
        ("max_entries", -1),
        ("max_entries", 2.5),
        ("max_entries", True),
        ("max_bytes", -1),
        ("max_bytes", float("nan")),
        ("beta", -1),
        ("sigma", float("nan")),
        ("degree", 0),
        ("degree", 6),
    ],
)
def test_a_limit_out_of_its_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]
