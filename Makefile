# kvtide's developer commands. `make` lists them; `make setup` once (3-5 min), then everything else is quick.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The Python (3.11 or newer) that the environments are made of; looked for when empty.
PYTHON ?=
# More pip arguments for the step that installs torch; where plain pip would fetch the CUDA build, name an index of
# CPU builds here.
TORCH_PIP_ARGS ?=
# How long `make demo` lasts once the engine is up, in seconds (default 60).
DEMO_SECONDS ?=
# Passed on to each pytest, for example: make test PYTEST_ARGS='-x -k leak'
PYTEST_ARGS ?=
# Passed on to `make score`: --quick, --tuning, --misses, --only TEXT
SCORE_ARGS ?=
# Passed on to `make chaos`: --seconds N, --seed N
CHAOS_ARGS ?=
# Passed on to `make soak`: --minutes N, --warm-up N, --twin
SOAK_ARGS ?=
export PYTHON TORCH_PIP_ARGS DEMO_SECONDS

AGENT := .venv/agent
ENGINE := .venv/engine
MODEL := build/tiny-model
BED := tests/bed
# A stamp is newer than all that its step depends on, so a second run does nothing and a changed pin installs again.
AGENT_STAMP := $(AGENT)/.installed
ENGINE_STAMP := $(ENGINE)/.installed
PLUGINS_STAMP := $(ENGINE)/.plugins-installed
MODEL_STAMP := $(MODEL)/.complete
PACKAGES_STAMP := build/.packages
BOARDS_STAMP := build/boards/.installed
HELM_STAMP := build/helm/.installed

# Set-up is locked, so that of two `make demo` at once one installs and the other waits and finds all done.
locked = mkdir -p build; exec 9>build/setup.lock; \
	flock -n 9 || { echo '[kvtide] another make is setting up: waiting for it'; flock 9; }; \
	$(MAKE) -s $(1)

.PHONY: help setup agent-env engine-env model demo boards test chaos soak compat compat-ends check generate dist \
	wheelhouse bench score clean distclean install uninstall

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20
	@echo
	@echo '  PYTHON=python3.12      the Python (3.11 or newer) to make the environments of'
	@echo '  TORCH_PIP_ARGS=...     pip arguments for the torch step, such as an index of CPU builds'
	@echo '  DEMO_SECONDS=60        how long the demo runs'
	@echo '  PYTEST_ARGS=-x         passed on to pytest'
	@echo '  SCORE_ARGS=--quick     passed on to the score'
	@echo '  CHAOS_ARGS=--seconds=60  passed on to the chaos'
	@echo '  SOAK_ARGS=--minutes=10   passed on to the soak (--warm-up=5; --twin: an engine without hooks beside it)'

setup: ## Make both environments and the tiny model (3-5 min once, then no time)
	@$(call locked,$(AGENT_STAMP) $(PLUGINS_STAMP) $(MODEL_STAMP) $(HELM_STAMP))

agent-env: ## Make the agent's environment, .venv/agent
	@$(call locked,$(AGENT_STAMP))

engine-env: ## Make the engine's environment, .venv/engine: vLLM on the CPU, kvtide beside it
	@$(call locked,$(PLUGINS_STAMP))

model: ## Build the tiny model, build/tiny-model
	@$(call locked,$(MODEL_STAMP))

demo: setup ## Show kvtide at work on a real vLLM server
	@$(AGENT)/bin/python -m tests.bed.demo

boards: setup ## Draw every Grafana board over a real engine that leaks, into build/boards/*.png (5 min; 0.5 GB once)
	@$(call locked,$(BOARDS_STAMP))
	@$(AGENT)/bin/python -m tests.bed.boards --modules build/boards --out build/boards

# Two lanes at a time, for each uses about one core: unit tests beside the others; then two lanes of real servers, most
# of which are waited for; then, alone, what looks at the clock or compares how much was served. A file of tests/e2e
# that is in no list is alone.
PATIENT := alert_chain backtest_prometheus boards envoy hookless systemd_boot web
LEFT := admission agent_failures chaos_kit engine_lives faults hashed_tenants load notify numbers speculation tenants topology
RIGHT := actions_real alerting balancer busy_leak driver_calls engine_without lever_chaos parallel versions waterfall
files = $(1:%=tests/e2e/test_%.py)
test: setup ## Run all tests: unit, engine, e2e
	@failed=0; \
	suite() { echo "[kvtide] $$2"; $$1/bin/python -m pytest $${@:2} --durations=5 $(PYTEST_ARGS) || return 1; }; \
	beside() { \
		local failed=0; \
		suite $(ENGINE) tests/engine || failed=1; \
		suite $(AGENT) $(call files,$(PATIENT)) || failed=1; \
		return $$failed; \
	}; \
	two() { \
		local failed=0; \
		"$$1" >build/test-beside.log 2>&1 & \
		"$$2" || failed=1; \
		wait $$! || failed=1; cat build/test-beside.log; \
		return $$failed; \
	}; \
	unit() { suite $(AGENT) tests/unit; }; \
	left() { suite $(AGENT) $(call files,$(LEFT)); }; \
	right() { suite $(AGENT) $(call files,$(RIGHT)); }; \
	two beside unit || failed=1; \
	two left right || failed=1; \
	suite $(AGENT) tests/e2e $(patsubst %,--ignore=%,$(call files,$(PATIENT) $(LEFT) $(RIGHT))) || failed=1; \
	exit $$failed

chaos: setup ## Pull levers at random on a real engine for ten minutes, shrink and grow its pool, break what may break
	@failed=0; \
	$(AGENT)/bin/python -m tests.bed.chaos $(CHAOS_ARGS) || failed=1; \
	$(ENGINE)/bin/python -m tests.engine.compaction.cycles || failed=1; \
	$(AGENT)/bin/python -m tests.bed.faults $(CHAOS_ARGS) || failed=1; \
	exit $$failed

soak: setup ## Serve for an hour, half of it warm-up, while all that comes and goes does so ten times as often: nothing may grow
	@$(AGENT)/bin/python -m tests.bed.soak $(SOAK_ARGS)

compat: setup ## Run the hook tests on every vLLM of constraints/compat.txt, write docs/compatibility.md (2.5 GB to fetch)
	@$(ENGINE)/bin/python -m tests.compat.run

compat-ends: setup ## The same on the oldest and the newest, against docs/compatibility.md (0.7 GB to fetch)
	@$(ENGINE)/bin/python -m tests.compat.run --ends --check

check: agent-env ## Lint, format, types, import contracts, generated files fresh, dependency audit
	@$(AGENT)/bin/ruff check .
	@$(AGENT)/bin/ruff format --check .
	@$(AGENT)/bin/mypy
	@$(AGENT)/bin/lint-imports
	@$(AGENT)/bin/python -m exporters.docs --check
	@$(AGENT)/bin/python -m agent.config_docs --check
	@$(AGENT)/bin/python -m agent.policy.docs --check
	@$(AGENT)/bin/python -m alerts.build --check
	@$(AGENT)/bin/python -m dashboards.build --check
	@$(AGENT)/bin/python -m deploy.values_docs --check
	@$(AGENT)/bin/python -m deploy.values_schema --check
	@$(AGENT)/bin/python -m deploy.audit

generate: agent-env ## Write the generated pages of docs/, rules, routing and boards
	@$(AGENT)/bin/python -m exporters.docs
	@$(AGENT)/bin/python -m agent.config_docs
	@$(AGENT)/bin/python -m agent.policy.docs
	@$(AGENT)/bin/python -m alerts.build
	@$(AGENT)/bin/python -m dashboards.build
	@$(AGENT)/bin/python -m deploy.values_docs
	@$(AGENT)/bin/python -m deploy.values_schema

dist: agent-env ## Build the wheel, the sdist and the Helm chart into dist/
	@$(call locked,$(HELM_STAMP))
	@rm -f dist/kvtide-*
	@$(AGENT)/bin/python -m hatchling build -d dist
	@build/helm/helm package deploy/helm/kvtide -d dist 2>/dev/null

wheelhouse: agent-env ## Build what an installation without a network needs into dist/wheelhouse: wheels, digests, SBOM
	@rm -rf dist/wheelhouse
	@$(AGENT)/bin/python -m deploy.wheelhouse dist/wheelhouse

bench: setup ## Run the benchmarks
	@$(ENGINE)/bin/python -m bench

score: setup ## Judge the labelled corpus, print how well (20 min; SCORE_ARGS=--quick: 2 min)
	@$(AGENT)/bin/python -m bench.score $(SCORE_ARGS)

install: ## Install the agent under systemd (root; PREFIX, DESTDIR, WHEELS: deploy/install.sh); again to upgrade
	@deploy/install.sh install

uninstall: ## Remove it; configuration and state stay
	@deploy/install.sh uninstall

clean: ## Remove what was built; the environments stay
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

distclean: clean ## Remove the environments as well
	@rm -rf .venv

# ---- set-up steps; reached only through the locked targets above ----

$(PACKAGES_STAMP): $(BED)/setup.sh
	@mkdir -p build
	@$(BED)/setup.sh packages
	@touch $@

$(AGENT_STAMP): pyproject.toml chaos/pyproject.toml constraints/agent.txt
	@$(BED)/setup.sh agent
	@touch $@

$(ENGINE_STAMP): constraints/engine.txt $(BED)/engine_requirements.txt | $(PACKAGES_STAMP)
	@$(BED)/setup.sh engine
	@touch $@

$(PLUGINS_STAMP): $(ENGINE_STAMP) pyproject.toml chaos/pyproject.toml $(wildcard $(BED)/leak_plugin/*.py $(BED)/leak_plugin/pyproject.toml)
	@$(BED)/setup.sh plugins
	@touch $@

$(BOARDS_STAMP): $(BED)/boards/web/package.json $(BED)/boards/web/package-lock.json
	@$(BED)/setup.sh boards
	@touch $@

$(HELM_STAMP): constraints/helm.txt | $(AGENT_STAMP)
	@$(BED)/setup.sh helm
	@touch $@

$(MODEL_STAMP): $(BED)/tiny_model.py | $(ENGINE_STAMP)
	@$(ENGINE)/bin/python -m tests.bed.tiny_model $(MODEL)
	@touch $@
