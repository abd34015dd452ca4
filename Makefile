# `make demo` and `make test` do all the set-up they need; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell cat VERSION)
LINES := python/skewless/spark/lines.txt
SPARK_LINES := $(shell grep -v '^\#' $(LINES) | cut -d ' ' -f 1)
SPARK_LINE := $(firstword $(SPARK_LINES))
OTHER_LINES := $(filter-out $(SPARK_LINE),$(SPARK_LINES))
jar = jvm/target/scala-2.13/skewless-spark-$(1)_2.13-$(VERSION).jar
JAR := $(call jar,$(SPARK_LINE))
JARS := $(foreach line,$(SPARK_LINES),$(call jar,$(line)))
COMMON := $(shell find jvm/src/main/scala -name '*.scala') $(LINES) build.sbt project/build.properties project/plugins.sbt VERSION
differing = $(shell find jvm/src/main/scala-spark-$(1) -name '*.scala')

.DEFAULT_GOAL := help
.PHONY: help demo test unit suites integration check subset lines faults soak format bench docs jar jars wheel clean tools

help:                 ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/ready $(JAR)  ## a stream on a local cluster, levelled while it runs
	$(BIN)/skewless demo

test: unit suites integration subset  ## every test: Python, Scala, then a real local cluster; some on other Sparks
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

# Every operator, the faults of tasks and files, checkpoints of older lines, and Python's operators on real executors.
SUBSET := *.StateSwapSuite *.StateFaultSuite *.GoldenCheckpointSuite *.RealTimeSuite

subset: $(OTHER_LINES:%=subset-%)  ## what `make test` tries on the further Spark lines; `make lines` tries all

subset-%: .venv-%/ready $(JARS)
	@echo "== Spark $*: every operator, and faults"
	@rm -rf jvm/target/spark-$*/test-reports && mkdir -p out
	build/sbt -Dskewless.line=$* "jvm/testOnly $(SUBSET)"
	.venv-$*/bin/python -m pytest integration/test_state.py -v -m "not rare" --junitxml=out/junit-integration-$*.xml

lines: $(OTHER_LINES:%=lines-%)  ## all suites and integration tests on the further Spark lines

lines-%: .venv-%/ready $(JARS)
	.venv-$*/bin/python -m pip install --quiet -e '.[simulate,report,milp,graph,dev]'
	build/sbt -Dskewless.line=$* jvm/test
	.venv-$*/bin/python -m pytest integration -v -m "not rare"

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

integration: $(VENV)/ready $(JARS)  ## tests on a local cluster with real executors
	@echo "== integration tests (local-cluster; each file starts its own session, about half a minute)"
	@mkdir -p out
	$(BIN)/pytest integration -v -m "not rare" --junitxml=out/junit-integration.xml

check: $(VENV)/ready $(OTHER_LINES:%=.venv-%/ready)  ## linters and types, as CI runs them
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	build/sbt scalafmtCheckAll jvm/Test/compile benchJvm/compile
	$(foreach line,$(OTHER_LINES),build/sbt -Dskewless.line=$(line) jvm/scalafmtCheckAll jvm/Test/compile &&) true

format: $(VENV)/ready ## rewrites the sources in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	build/sbt scalafmtAll
	$(foreach line,$(OTHER_LINES),build/sbt -Dskewless.line=$(line) jvm/scalafmtAll &&) true

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

jar: $(JAR)           ## the jar for the Spark of the development environment, the first of the list of lines

jars: $(JARS)         ## a jar for each Spark line

wheel: $(VENV)/ready $(JARS)  ## the wheel, with the jars inside, in dist/
	$(BIN)/python -m build --wheel --outdir dist .

clean:                ## removes what was built, not the virtual environment
	rm -rf jvm/target bench/jvm/target target project/target project/project dist out

tools:
	@PYTHON="$(PYTHON)" build/tools

$(VENV)/ready: pyproject.toml | tools
	@echo "== Python environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[spark,simulate,report,milp,graph,dev]' 'pyspark==$(SPARK_LINE).*'
	@touch $@

# The further lines: an environment with the Spark of the list, whose jars are compiled against, and a jar.
# A test file there runs with that Python; Scala suites run with -Dskewless.line.
$(foreach line,$(OTHER_LINES),.venv-$(line)/ready): .venv-%/ready: pyproject.toml $(LINES) | tools
	@echo "== Python environment for Spark $* in .venv-$*"
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --upgrade pip
	.venv-$*/bin/python -m pip install --quiet -e '.[spark]' 'pyspark==$(shell grep "^$* " $(LINES) | cut -d " " -f 2)' pytest psutil
	@touch $@

define line_rules
$(call jar,$(1)): $(COMMON) $(call differing,$(1)) | tools $(if $(filter $(1),$(OTHER_LINES)),.venv-$(1)/ready)
	@echo "== jar for Spark $(1)"
	build/sbt -Dskewless.line=$(1) jvm/package
	@touch $$@
endef
$(foreach line,$(SPARK_LINES),$(eval $(call line_rules,$(line))))
