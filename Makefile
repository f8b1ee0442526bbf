# Every target sets up the environment it needs, from constraints.txt, when it is missing or older than its sources:
#   .venv            everything: tests, checks, benches
#   .venv-run        what `kactl up` needs, and nothing else
#   .venv-check-3.N  one for each Python of `make check`
#   .venv-supply     the programs of `make audit` and `make sbom`
#   .venv-lowest     the oldest dependencies that are permitted, for `make lowest`
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUN_VENV := .venv-run
RUN_READY := $(RUN_VENV)/.ready
# Empty if PYTHON cannot be run; the recipe then reports it.
CHECK_VENV := .venv-check-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
CHECK_READY := $(CHECK_VENV)/.ready
SUPPLY_VENV := .venv-supply
SUPPLY_READY := $(SUPPLY_VENV)/.ready
LOCKED := $(wildcard .ci/locked/*.txt)
# Tests that need neither Java nor minutes.
FAST := not long and not old and not slow and not interop and not java
# More for pytest: make test ARGS='-k election -x'; more for the race: make race ARGS='--sizes 10x10000 --runs 1'
ARGS ?=
# Processes that run tests, for two processors: at any time one of them may wait for a session, a server or a child.
# Each takes ten seconds of processor time to collect the tests.
WORKERS ?= 3
# Tests start hundreds of interpreters. Without bytecode on disk each of them compiles all that it imports, which takes
# longer than most of what they are started for.
unexport PYTHONDONTWRITEBYTECODE
# Runs beside the tests in `make test`: with an empty cache it takes 40 s on one processor, while the other had nothing to do.
MYPY := $(BIN)/mypy --no-error-summary -p kactl -p tests -p bench -p docs.website
# The length of `make sim`, and the last of the seeds that it runs in other processes.
SIM_HOURS ?= 6
SIM_DETERMINISM ?= 999
# The length of the long form of each set of hostile stories in `make truth`; an hour in `make nightly`.
HOSTILE_MINUTES ?= 1
export HOSTILE_MINUTES
# Where the figures of the benches go.
RESULTS ?= bench/results

.DEFAULT_GOAL := help
.PHONY: help run test check check-all truth old-brokers acceptance soak soak-participants sim fuzz judge bench bench-all race lint types docs contracts lock lowest audit sbom wheel sdist sign verify nightly security-score clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(RUN_READY) ## a cluster in one process, electing; its state is kept in .kactl/
	@$(RUN_VENV)/bin/kactl up --demo

test: lint contracts ## every check and every test but the long ones, real brokers included
	@$(MYPY) & types=$$!; code=0; $(BIN)/python -m pytest -n $(WORKERS) $(ARGS) || code=$$?; \
		wait $$types || { echo 'kactl: mypy has found errors: make types' >&2; exit 1; }; exit $$code

check: $(CHECK_READY) ## the fast tests on one Python, without Java: make check PYTHON=python3.13
	@$(CHECK_VENV)/bin/python -m pytest -n $(WORKERS) -m '$(FAST)' --hypothesis-profile=check $(ARGS)

check-all: ## the fast tests on every Python of the machine that is supported
	@set -e; pythons=$$(PYTHON=$(PYTHON) .ci/pythons); for python in $$pythons; do \
		echo "kactl: make check PYTHON=$$python"; $(MAKE) --no-print-directory check PYTHON=$$python; done

truth: $(READY) ## the cases left out of `make test`: logs of bad days against what happened, and exhaustive cases
	@$(BIN)/python -m pytest -n 2 -m long $(ARGS)

old-brokers: $(READY) ## brokers of Kafka 2.6 to 3.8, and a roll of three versions to 3.9; half an hour (ARGS='-k 2.8.2')
	@$(BIN)/python -m pytest -n 2 -m interop tests/interop/old_brokers $(ARGS)

acceptance: $(READY) ## the acceptance checklist, whole, at the oldest and the newest protocol level; Java
	@$(BIN)/python -m pytest -n 1 -m 'interop and not long' tests/interop/acceptance $(ARGS)

soak: $(READY) ## minutes of faults for real brokers under load (SOAK_MINUTES, SOAK_SEED, SOAK_LEVEL)
	@$(BIN)/python -m tests.interop.soak

soak-participants: $(READY) ## an hour of faults for participants and controllers in processes; etcd (SOAK_MINUTES, SOAK_SEED)
	@$(BIN)/python -m tests.transports.tcp.soak

sim: $(READY) ## random scripts for simulated clusters, on all processors, then their runs in other processes (SIM_HOURS)
	@$(BIN)/python -m tests.sim run --minutes $$(( $(SIM_HOURS) * 60 )) --jobs $$(nproc) $(ARGS)
	@$(BIN)/python -m tests.sim.engine.determinism 0:$(SIM_DETERMINISM) $(BIN)/python $(wildcard .venv-check-*/bin/python)

fuzz: $(READY) ## ten million changed inputs for all decoders; minutes (ARGS='INPUTS SEED')
	@$(BIN)/python -m tests.fuzz $(ARGS)
	@$(BIN)/python -m tests.fuzz.guided

judge: $(READY) ## random operations on the simulated ZooKeeper and on a real one; Java (ARGS='OPERATIONS SEED')
	@$(BIN)/python -m tests.sim.zookeeper.judge $(ARGS)

bench: $(READY) ## what an election costs, stage by stage
	@$(BIN)/python -m bench.election $(ARGS)

bench-all: $(READY) ## every bench but the race, at published sizes, into RESULTS; half an hour and more, needs Java and Maven
	@set -e; for each in election tracing failover outage answers ownership latency channel store stores security encryption forensics whatif; do \
		$(BIN)/python -m bench.$$each --full --quiet --output $(RESULTS)/$$each.json; done

race: $(READY) ## Kafka's controller and kactl, in turn, over one ZooKeeper; forty minutes, needs Java 17 and Maven
	@$(BIN)/python -m bench.race --sizes 10x10000,30x100000,100x200000 --output $(RESULTS)/race.json $(ARGS)

lint: $(READY) ## ruff
	@$(BIN)/ruff check --quiet .

types: $(READY) ## mypy, strict
	@$(MYPY)

docs: $(READY) ## the documentation site in build/site; warnings are errors
	@$(BIN)/python -m docs.website build/site
	@echo "kactl: open build/site/index.html"

contracts: $(READY) ## which way imports point
	@$(BIN)/lint-imports --no-cache --no-logo

lock: ## resolve all dependencies anew and write constraints.txt and .ci/locked/, with hashes
	@PYTHON=$(PYTHON) .ci/lock

lowest: ## the fast tests with the oldest dependencies that pyproject.toml permits; needs the network (ARGS='tests/admin')
	@PYTHON=$(PYTHON) .ci/lowest -n $(WORKERS) -q -m "$(FAST)" $(ARGS)

audit: $(SUPPLY_READY) ## known vulnerabilities of the locked versions; needs the network
	@$(SUPPLY_VENV)/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r .ci/locked/all.txt $(ARGS)

sbom: $(SUPPLY_READY) ## what kactl contains, as CycloneDX documents in dist/
	@mkdir -p dist
	@set -e; for list in server all; do \
		$(SUPPLY_VENV)/bin/cyclonedx-py requirements --output-reproducible --of JSON -o dist/kactl-$$list.cdx.json .ci/locked/$$list.txt; done

wheel: $(READY) ## the wheel in dist/, the same bytes for the same commit, and its SHA-256
	@mkdir -p dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@sha256sum dist/kactl-*.whl

sdist: $(READY) ## the source distribution of the last commit in dist/, the same bytes for the same commit, and its SHA-256
	@source=$$(mktemp -d) && trap 'rm -rf "$$source"' EXIT && git archive HEAD | tar -x -C "$$source" && \
		find "$$source" -type l -delete && \
		SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python .ci/sdist "$$source" dist >/dev/null 2>&1
	@sha256sum dist/kactl-*.tar.gz

sign: ## SHA256SUMS of the files in dist/, and its signature by an SSH key (KEY=FILE)
	@.ci/release sign $(KEY) dist

verify: ## compare the files in dist/ with their signed SHA256SUMS (SIGNERS=FILE)
	@.ci/release verify $(SIGNERS) dist

security-score: $(READY) ## how many edits of logins, access and TLS the tests notice; up to an hour (ARGS='--share 10', ARGS=--branches)
	@$(BIN)/python -m tests.mutation $(ARGS)

nightly: ## what is too long for each change, or needs the network: audit, fuzz, the scores of tests, the long tests, other brokers
	@$(MAKE) --no-print-directory audit
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory security-score
	@$(MAKE) --no-print-directory truth HOSTILE_MINUTES=60
	@$(MAKE) --no-print-directory old-brokers
	@$(MAKE) --no-print-directory acceptance

clean: ## remove what the other targets made, but not the state in .kactl/
	@rm -rf $(VENV) $(RUN_VENV) $(SUPPLY_VENV) .venv-lowest .venv-check-* build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# $(call installed,FOLDER,LIST): installs a list of .ci/locked/. A file with another hash than the list has ends it.
define installed
	@PYTHONWARNINGS=ignore $(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-build-isolation --no-deps --require-hashes -r .ci/locked/$(2).txt
endef

# $(call environment,FOLDER,LIST,DURATION): a virtual environment with kactl and a list of .ci/locked/. It is made from nothing
# each time, so that nothing is left of an earlier list of dependencies. The pinned setuptools builds kactl, and modules
# are compiled when they are first imported: both halve the time of `make run`.
define environment
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("kactl needs Python 3.11 or later; $(PYTHON) is %d.%d. Name another one: make PYTHON=python3.12 ..." % v[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo '$(PYTHON) cannot make virtual environments: install its venv package (Debian, Ubuntu: python3-venv)' >&2; exit 1; }
	@echo 'kactl: setting up $(1) ($(3), once)' >&2
	@$(PYTHON) -m venv --clear $(1)
	$(call installed,$(1),tools)
	$(call installed,$(1),$(2))
	@PYTHONWARNINGS=ignore $(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-build-isolation --no-deps -e .
	@touch $(1)/.ready
endef

$(READY): pyproject.toml constraints.txt $(LOCKED)
	$(call environment,$(VENV),all,a minute)

$(RUN_READY): pyproject.toml constraints.txt $(LOCKED)
	$(call environment,$(RUN_VENV),server,seconds)

$(CHECK_READY): pyproject.toml constraints.txt $(LOCKED)
	$(call environment,$(CHECK_VENV),all,a minute)

$(SUPPLY_READY): .ci/locked/supply.txt
	@echo 'kactl: setting up $(SUPPLY_VENV) (seconds, once)' >&2
	@$(PYTHON) -m venv --clear $(SUPPLY_VENV)
	$(call installed,$(SUPPLY_VENV),supply)
	@touch $(SUPPLY_READY)
