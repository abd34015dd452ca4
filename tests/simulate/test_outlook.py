"""How far ahead the hot keys of a stream can be foreseen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from skewless.cli.advise import advise_command
from skewless.errors import SettingError
from skewless.forecast import training
from skewless.simulate import from_array
from skewless.simulate.outlook import outlook
from skewless.simulate.terminal import outlook_text


def by_turns(windows: int, rows: int, period: int) -> np.ndarray:
    """Six hot keys, and another weight for each of them in each window of the period."""
    generator = np.random.default_rng(4)
    laws = generator.dirichlet(np.full(6, 0.7), period)
    return np.concatenate([generator.choice(6, rows, p=laws[window % period]) for window in range(windows)])


def test_keys_that_take_turns_are_foreseen_far_ahead_by_the_season() -> None:
    found = outlook(from_array(by_turns(90, 400, 5)), workers=3, windows=90, gru=False)
    assert (found.horizon, found.by) == (10, "seasonal")
    assert 'skewless.balance(spark, forecast="seasonal")' in outlook_text(found)
    wrong = {(one.forecaster, one.horizon): one.wrong for one in found.outcomes}
    assert wrong["seasonal", 10] < 0.5 * wrong["ewma", 10]


def test_keys_drawn_anew_in_each_window_cannot_be_foreseen() -> None:
    found = outlook(from_array(by_turns(90, 400, 90)), workers=3, windows=90, gru=False)
    assert found.horizon == 0
    assert "cannot be foreseen" in found.words[-1]


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(SettingError, match="rows are too few to judge forecasts"):
        outlook(from_array([1, 2, 3]), workers=3)


def test_advise_says_it_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr(training, "find_spec", lambda name: None)
    pq.write_table(pa.table({"k": by_turns(120, 120, 4)}), tmp_path / "keys.parquet")
    command = [str(tmp_path / "keys.parquet"), "--key", "k", "--workers", "2", "--forecast"]
    shown = CliRunner().invoke(advise_command, command)
    assert shown.exit_code == 0, shown.output
    assert "windows ahead, by" in shown.output
    assert "pip install 'skewless[forecast]'" in shown.output
    found = json.loads(CliRunner().invoke(advise_command, [*command, "--json"]).output)
    assert found["forecast"]["horizon"] > 0
