# Needs Python 3.11 or newer and make; everything else is installed into .venv from requirements.lock.
# Paths are relative throughout, so a checkout in a folder with a space works.
PYTHON ?= python3
ARGS ?=
WORKERS ?= auto
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: run control-plane operators test test-acceptance test-long test-world test-demo first-hour mutants lint bench pictures clean lock manifests release vendor help

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/'

run: $(STAMP) ## queuectl sandbox: all components on this machine, with an example (options in ARGS)
	@$(PY) -m queuectl sandbox $(ARGS)

# Tests start many processes: each loads bytecode instead of compiling the package again.
test test-acceptance test-long test-world: export PYTHONDONTWRITEBYTECODE :=
# And they start many API servers: a collector that runs less often saves a seventh of the CPU of a start.
test-acceptance: export GOGC ?= 400
# Sets of texts have the same order in each process: what a schedule shows here, its seed shows again.
test-acceptance: export PYTHONHASHSEED ?= 0

test: $(STAMP) ## unit and integration tests and an end-to-end smoke, on all cores; three to four minutes on two (options for pytest in ARGS)
	@$(PY) -m pytest -n $(WORKERS) -m 'not acceptance' tests/unit tests/integration $(ARGS)

test-acceptance: $(STAMP) ## all other tests, and laws with many examples; CONTRIBUTING.md says what they need (options for pytest in ARGS)
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PY) -m pytest -n $(WORKERS) -m 'acceptance or law' $(ARGS)

test-long: $(STAMP) ## faults under load on a real control plane (its options in ARGS), malformed input, the simulated system, usage of a year; takes hours
	@$(PY) -m tests.acceptance.chaos $(ARGS)
	@$(PY) -m tests.instruments
	@$(PY) -m tests.integration.ledger.year

test-world: $(STAMP) ## 10,000 schedules of the whole system on virtual time, and a crash at each write; takes hours (options in ARGS)
	@$(PY) -m tests.world --crash-points 1
	@$(PY) -m tests.world --schedules 200 --postgres
	@$(PY) -m tests.world --schedules 10000 --workers 2 --coverage $(ARGS)

test-demo: $(STAMP) ## the sandbox's example for ten minutes, and after a restart (options in ARGS)
	@$(PY) -m tests.acceptance.demo $(ARGS)

first-hour: $(STAMP) ## type the commands of README and docs/install.md in an empty home (options in ARGS)
	@$(PY) -m tests.acceptance.first_hour $(ARGS)

mutants: $(STAMP) ## apply each planted bug of tests/acceptance/mutants and check that a test detects it; takes many minutes (names in ARGS)
	@$(PY) -m tests.acceptance.mutants $(ARGS)

lint: $(STAMP) ## check style, types and imports: ruff, mypy, import-linter; TypeScript for the web page, if npm is there
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) -m release.page_check
	@$(PY) -m tests.house

control-plane: ## make etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl 1.36 with Go, and print their folder for KUBEBUILDER_ASSETS
	@bash .ci/kubernetes-1.36/build.sh

operators: ## make the operators that kinds are tested on with Go, and print their folder for QUEUECTL_OPERATORS
	@bash .ci/operators/build.sh

bench: $(STAMP) ## benchmarks, each beside a reference on the same machine; takes 20 minutes (options in ARGS)
	@$(PY) -m benchmarks $(ARGS)

pictures: $(STAMP) ## record the example, draw docs/pictures and README's transcript; needs Chromium (ARGS=--draw: no recording)
	@$(PY) -m docs.pictures.make $(ARGS)

manifests: $(STAMP) ## write the generated files in manifests/, docs/ and deploy/
	@$(PY) -m release.crds manifests/crds
	@$(PY) -m queuectl manifests manifests
	@$(PY) -m docs.tables
	@$(PY) -m release.chart
	@{ printf '%s\n' '# Generated from ../rules.yaml by `make manifests`: change that file.' \
	  'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' 'metadata:' '  name: queuectl' \
	  '  namespace: queuectl-system' '  labels:' '    app.kubernetes.io/name: queuectl' 'spec:'; \
	  grep -v '^#' manifests/monitoring/rules.yaml | sed 's/^/  /'; } > manifests/monitoring/prometheus-operator/rules.yaml

vendor: $(STAMP) ## fetch the libraries of the web page with npm, as their lock names them (options in ARGS)
	@$(PY) -m release.vendor $(ARGS)

release: $(STAMP) ## build wheel, sdist, image context, chart and kubectl plugin in dist/, and check the wheel (options in ARGS)
	@$(PY) -m release $(ARGS)

LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-annotate --no-header --quiet

lock: $(STAMP) ## resolve requirements.lock and those of the images again: versions and hashes only
	@$(PY) -m pip install --quiet uv
	@$(PY) -m $(LOCK) --all-extras --group dev -o requirements.lock
	@$(PY) -m $(LOCK) --constraint requirements.lock -o requirements-runtime.lock
	@$(PY) -m $(LOCK) --constraint requirements.lock --extra sandbox -o requirements-sandbox.lock

clean: ## remove what was built in this folder; the data of the sandbox are elsewhere and stay
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "queuectl needs Python 3.11 or newer, this is %d.%d: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time only)"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
