"""The commands that set things up, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import skewless
from skewless.cli import cli
from skewless.cli import submit_args as submit_module
from skewless.spark import doctor as doctor_module
from skewless.spark.doctor import Diagnosis, Finding
from skewless.spark.submitted import EXTENSION, PROVIDER_KEY

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_that_of_the_house() -> None:
    assert skewless.__version__ == (ROOT / "VERSION").read_text().strip()
    assert skewless.__version__ in CliRunner().invoke(cli, ["--version"]).output


def test_conf_path_names_a_file() -> None:
    found = CliRunner().invoke(cli, ["conf-path"])
    assert Path(found.output.strip()).read_text() == (ROOT / "conf" / "skewless.conf").read_text()


def test_submit_args_prints_flags_and_warns_apart_from_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(submit_module, "jar_path", lambda: Path("/our.jar"))
    (tmp_path / "spark-defaults.conf").write_text(f"spark.sql.extensions D\n{PROVIDER_KEY} a.B\n")
    found = CliRunner().invoke(cli, ["submit-args", "--master", "yarn", "--jars", "x.jar", "-v"])
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("--master yarn -v --jars x.jar,/our.jar --conf ")
    assert f"--conf spark.sql.extensions=D,{EXTENSION} " in found.stdout
    assert f"--conf {PROVIDER_KEY}=a.B\n" in found.stdout
    assert "it is kept" in found.stderr
    wrong = CliRunner().invoke(cli, ["submit-args", "--jars"])
    assert wrong.exit_code == 1
    assert "--jars has no value" in wrong.stderr


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_doctor_says_it_in_words_in_json_and_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, ok: bool, code: int
) -> None:
    asked: list[object] = []

    def doctor(spark: object, checkpoint: object) -> Diagnosis:
        asked.append((spark, checkpoint))
        return Diagnosis((Finding(ok, "Java", "8", "" if ok else "Install a JDK 17."),))

    monkeypatch.setattr(doctor_module, "doctor", doctor)
    words = CliRunner().invoke(cli, ["doctor", "--checkpoint", "/c"])
    facts = CliRunner().invoke(cli, ["doctor", "--json"])
    assert words.exit_code == facts.exit_code == code
    assert asked == [(None, "/c"), (None, None)]
    assert words.output.startswith("ok     Java        8\n" if ok else "WRONG  Java        8\n")
    assert ("-> Install a JDK 17." in words.output) is not ok
    assert json.loads(facts.output)["ok"] is ok
    assert json.loads(facts.output)["findings"][0]["what"] == "Java"
