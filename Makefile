# `make demo` and `make test` do all the set-up they need; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell cat VERSION)
LINES := python/skewless/spark/lines.txt
SPARK_LINE := $(shell grep -v '^\#' $(LINES) | tail -n 1 | cut -d ' ' -f 1)
JAR := jvm/target/scala-2.13/skewless-spark-$(SPARK_LINE)_2.13-$(VERSION).jar
SOURCES := $(shell find jvm/src/main -name '*.scala') $(LINES) build.sbt project/build.properties project/plugins.sbt VERSION

.DEFAULT_GOAL := help
.PHONY: help demo test unit suites integration check faults soak format bench docs jar wheel clean tools

help:                 ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/ready $(JAR)  ## a stream on a local cluster, levelled while it runs
	$(BIN)/skewless demo

test: unit suites integration  ## every test: Python, Scala, then a real local cluster
	@$(BIN)/python build/tally.py

unit: $(VENV)/ready   ## Python tests that start no JVM, with the doctests
	@echo "== Python tests (no JVM)"
	@mkdir -p out && rm -f out/junit-*.xml
	$(BIN)/pytest tests --junitxml=out/junit-unit.xml
	$(BIN)/pytest --doctest-modules python/skewless --junitxml=out/junit-doctest.xml

suites: tools         ## Scala suites, on local[n]
	@echo "== Scala suites"
	@rm -rf jvm/target/test-reports
	build/sbt jvm/test

faults: $(VENV)/ready $(JAR)  ## every stateful operator under every fault, and the table of it in docs/ (an hour or more)
	@echo "== the full matrix of operators and faults"
	@rm -rf jvm/target/test-reports
	build/sbt -Dskewless.matrix=full "jvm/testOnly *.State*Suite *.LookAheadSuite"
	build/sbt -Dskewless.matrix=full "jvm/testOnly *.Handover*Suite *.checkpoint.*Suite"
	$(PYTHON) build/faults.py
	$(BIN)/pytest integration -v -m rare

MINUTES ?= 60
soak: $(VENV)/ready $(JAR)  ## random queries, tables, kills and restarts against plain Spark, and memory; MINUTES=60 SEED=...
	$(BIN)/python -m bench.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

integration: $(VENV)/ready $(JAR)  ## tests on a local cluster with real executors
	@echo "== integration tests (local-cluster; each file starts its own session, about half a minute)"
	@mkdir -p out
	$(BIN)/pytest integration -v -m "not rare" --junitxml=out/junit-integration.xml

check: $(VENV)/ready  ## linters and types, as CI runs them
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	build/sbt scalafmtCheckAll jvm/Test/compile benchJvm/compile

format: $(VENV)/ready ## rewrites the sources in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	build/sbt scalafmtAll

bench: $(VENV)/ready $(JAR)  ## ratios against plain Spark, measured in one run, and the probe's cost by JMH; DATA=folder of streams
	$(BIN)/python bench/exchange.py
	$(BIN)/python bench/publish.py
	$(BIN)/python bench/state.py
	$(BIN)/python bench/latency.py
	build/sbt benchJvm/package
	$(BIN)/python bench/streams.py $(if $(DATA),--data $(DATA))
	$(BIN)/python bench/policies.py
	$(BIN)/python bench/simulate.py
	build/sbt 'benchJvm/Jmh/run -rf text'

docs: tools           ## the generated pages
	build/sbt "jvm/runMain io.skewless.SettingsPage $(CURDIR)/docs/configuration.md"

jar: $(JAR)           ## the jar

wheel: $(VENV)/ready $(JAR)  ## the wheel, with the jar inside, in dist/
	$(BIN)/python -m build --wheel --outdir dist .

clean:                ## removes what was built, not the virtual environment
	rm -rf jvm/target bench/jvm/target target project/target project/project dist out

tools:
	@PYTHON="$(PYTHON)" build/tools

$(VENV)/ready: pyproject.toml | tools
	@echo "== Python environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[spark,simulate,report,milp,graph,dev]'
	@touch $@

$(JAR): $(SOURCES) | tools
	@echo "== jar"
	build/sbt jvm/package
	@touch $@
