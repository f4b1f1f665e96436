# Needs python3 (3.11 or newer) and make; everything else is installed into .venv,
# from files that name every version and its hash.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
ARGS ?=
# no: the demo leaves out its second part, which is on Spark.
SPARK ?= yes
# The minor releases of PySpark beside the one in requirements/dev.txt; the oldest is in `make test`.
FLOOR := 4.0
VERSIONS := $(FLOOR) 4.1 4.2
# Test processes: three for each core, as many of them wait, but no more than eight.
WORKERS ?= auto
# The Chromium that `make test-web` drives.
BROWSER ?= $(shell for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	command -v $$name && break; done)

# Trust what the system trusts, as pip and git do: behind a proxy with its own certificate too.
export UV_SYSTEM_CERTS ?= true
# The cache may be on another disk; a copy then is no reason for a warning.
export UV_LINK_MODE ?= copy
# What Python has compiled is kept, also where the environment says not to: the tests start
# thousands of processes, and each would compile whatever it imports (0.9 s of CPU time, not 0.2).
export PYTHONDONTWRITEBYTECODE :=

# A uv that is installed already is used; else one is put into .venv.
ifeq ($(shell uv --version 2>/dev/null),)
UV := $(BIN)/uv
OWN_UV := $(BIN)/uv
else
UV := uv
OWN_UV :=
endif

INSTALL := $(UV) pip install --quiet --python $(BIN)/python
COMPILE := $(UV) pip compile --no-config --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-header

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-quick test-stores test-spark-versions test-airflow test-web check coverage soak bench docs format proto lock sbom audit clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS are handed on: make test ARGS="-k claim"'

setup: $(VENV)/.run $(VENV)/.dev $(VENV)/.docs ## .venv with everything
	@echo ".venv is ready: tests, checks and documentation."

demo: $(VENV)/.run ## see it work, then on Spark, which is installed for it; SPARK=no leaves that out
	@$(BIN)/penstock demo $(ARGS)
ifneq ($(SPARK),no)
	@$(MAKE) --no-print-directory --silent $(VENV)/.spark
	@$(BIN)/penstock demo --spark $(ARGS)
endif

test: $(VENV)/.dev $(VENV)/spark-$(FLOOR)/.ready ## every test but the full-size ones
	$(PYTEST) -n $(WORKERS) --maxprocesses 8 -m "not soak and not browser and not spark_versions and not airflow" $(ARGS)

# What these folders test takes real processes, servers or Spark: not even their imports are quick.
SLOW := browser docs examples integrations spark stories trust

test-quick: $(VENV)/.dev ## a look in about a minute: pure modules, memory and SQLite; no server, no Spark
	$(PYTEST) -n $(WORKERS) --maxprocesses 8 -m "quick and not soak" $(SLOW:%=--ignore=tests/%) $(ARGS)

test-stores: $(VENV)/.dev $(VENV)/spark-$(FLOOR)/.ready ## every test on every store, also those that `make test` runs on one of them
	$(PYTEST) -n $(WORKERS) --maxprocesses 8 -m "(not soak or every_store) and not browser and not spark_versions and not airflow" $(ARGS)

test-spark-versions: $(VENV)/.dev $(VERSIONS:%=$(VENV)/spark-%/.ready) ## a little of everything on every minor release of PySpark
	$(PYTEST) tests/spark/test_versions.py $(ARGS)

test-airflow: $(VENV)/.dev $(VENV)/airflow/.ready ## the operator in a real Airflow, the recipe in a real Dagster
	$(PYTEST) -m airflow tests/orchestrators $(ARGS)

test-web: $(VENV)/.dev ## the dashboard in a real browser, headless; BROWSER=path of a Chromium
ifeq ($(BROWSER),)
	@echo "no Chromium is found here: \`apt-get install chromium\`, or make test-web BROWSER=/its/path" >&2
	@exit 1
else
	PENSTOCK_BROWSER=$(BROWSER) $(BIN)/pytest -m "browser and not every_store" tests/browser $(ARGS)
endif

check: $(VENV)/.dev ## what CI runs: format, lint, types, import rules, tests; in a browser where there is one
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test
ifneq ($(BROWSER),)
	@$(MAKE) --no-print-directory test-web
endif

# Which tests `make coverage` measures: `make coverage TESTS=test` for all of them.
TESTS ?= test-quick

coverage: $(VENV)/.dev ## which lines of src no test runs, by file; slower than test-quick, which it measures
	$(BIN)/coverage erase
	@$(MAKE) --no-print-directory $(TESTS) PYTEST="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

soak: $(VENV)/.dev ## the full-size tests; takes a while
	$(BIN)/pytest -m soak --timeout 3600 $(ARGS)

bench: $(VENV)/.run ## Penstock and its peers, measured side by side; ARGS=--quick for a look
	@$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(VENV)/.docs ## build the documentation into site/
	$(BIN)/zensical build --clean $(ARGS)

format: $(VENV)/.dev ## format, and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# Under the name of the package that they are in, which is what they import each other by.
CONTRACT := penstock/manager/contract

proto: $(VENV)/.dev ## make the messages in src/penstock/manager/contract from proto/, in DIR (src)
	$(BIN)/python -m grpc_tools.protoc -I $(CONTRACT)=proto/penstock/v1 \
		--python_out=$(or $(DIR),src) --pyi_out=$(or $(DIR),src) $(wildcard proto/penstock/v1/*.proto)

lock: $(VENV)/.dev ## write requirements/*.txt anew; ARGS=--upgrade for newer versions
	$(COMPILE) $(ARGS) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) $(ARGS) requirements/build.in -o requirements/build.txt
	$(COMPILE) $(ARGS) pyproject.toml -o requirements/run.txt
	$(COMPILE) $(ARGS) pyproject.toml --extra spark -c requirements/run.txt \
		-c requirements/constraints.in -o requirements/spark.txt
	$(COMPILE) $(ARGS) pyproject.toml --all-extras requirements/dev.in -c requirements/uv.txt \
		-c requirements/build.txt -c requirements/run.txt -c requirements/spark.txt -o requirements/dev.txt
	for minor in $(VERSIONS); do echo "pyspark==$$minor.*" | \
		$(COMPILE) $(ARGS) - -o requirements/spark-$$minor.txt; done
	$(COMPILE) $(ARGS) pyproject.toml requirements/airflow.in -o requirements/airflow.txt
	$(COMPILE) $(ARGS) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt

sbom: ## dist/penstock-queue.cdx.json: everything that an installation has, for programs (CycloneDX)
	@mkdir -p dist
	@$(PYTHON) requirements/supply_chain.py sbom > dist/penstock-queue.cdx.json
	@echo dist/penstock-queue.cdx.json

audit: ## ask the package index for known vulnerabilities of it; without an index it says so
	@$(PYTHON) requirements/supply_chain.py audit $(ARGS)

clean: ## remove .venv and everything else that was made
	rm -rf $(VENV) site dist .coverage .coverage.* .pytest_cache .ruff_cache .hypothesis .import_linter_cache .cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The files below say what .venv holds; one older than its list is made again.

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Penstock needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.12")'
	@echo "First time here: making .venv."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(BIN)/uv: requirements/uv.txt | $(VENV)/.made
	@echo "Installing uv into .venv, which installs the rest (first time, or its version changed)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(VENV)/.run: pyproject.toml requirements/run.txt requirements/build.txt | $(VENV)/.made $(OWN_UV)
	@echo "Installing Penstock and what it runs on into .venv (first time, or its list changed)."
	@$(INSTALL) --require-hashes -r requirements/build.txt -r requirements/run.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run | $(OWN_UV)
	@echo "Installing the tools for tests and checks into .venv (first time, or their list changed)."
	@$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

# Whoever has no uv expects no cache of it, and Spark's is 2.6 GB.
PASSING := $(if $(OWN_UV),--cache-dir $(VENV)/.passing)

# What the tests need has all of it.
$(VENV)/.spark: requirements/spark.txt $(VENV)/.run | $(OWN_UV)
	@$(BIN)/python -c 'import pyspark' 2>/dev/null || printf '\n%s\n%s\n%s\n' \
		"Next, the data pipeline, which runs on Apache Spark. That is installed into .venv now:" \
		"about 550 MB to download, 800 MB on disk (3.5 GB while it is unpacked), a Java among it." \
		"Ctrl-C leaves it out, and so does make demo SPARK=no; what you have seen stays."
	@test $(VENV)/.dev -nt requirements/spark.txt || \
		$(subst --quiet,,$(INSTALL)) $(PASSING) --require-hashes -r requirements/spark.txt
	@rm -rf $(VENV)/.passing
	@touch $@

# Everything of .venv, behind another PySpark: half a gigabyte each.
$(VENV)/spark-%/.ready: requirements/spark-%.txt $(VENV)/.dev | $(OWN_UV)
	@echo "Installing PySpark $* beside that of .venv, for its tests: 430 MB to download, 460 MB on disk."
	@$(UV) venv --quiet --clear --python $(BIN)/python $(@D)
	@$(UV) pip install --quiet --python $(@D)/bin/python --require-hashes -r $<
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth
	@touch $@

# Nothing of .venv: Airflow says of nearly everything which version it wants.
$(VENV)/airflow/.ready: requirements/airflow.txt requirements/build.txt pyproject.toml | $(VENV)/.dev $(OWN_UV)
	@echo "Installing Airflow and Dagster into an environment of their own, for their tests: 700 MB on disk."
	@$(UV) venv --quiet --clear --python $(BIN)/python $(@D)
	@$(UV) pip install --quiet --python $(@D)/bin/python --require-hashes -r requirements/build.txt -r requirements/airflow.txt
	@$(UV) pip install --quiet --python $(@D)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.run | $(OWN_UV)
	@echo "Installing the documentation builder into .venv (first time, or its list changed)."
	@$(INSTALL) --require-hashes -r requirements/docs.txt
	@touch $@
