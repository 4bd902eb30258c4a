# Every target that needs packages makes .venv first: all it takes is a Python >= 3.10. The demo needs those of
# deploy/locks/local.txt, all other targets the developers' tools too: deploy/locks/dev.txt.
#   make demo ARGS="--seconds 60"      make test ARGS="tests/unit/schemas -x"      make test PYTHON=python3.12

PYTHON ?= python3
ARGS ?=
JOBS ?= 4

# Modules are compiled once: without their bytecode each of the processes compiles some 550 itself, for 1.8 s.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv/bin
# What is marked `night` waits for the night: a case, a seed or a file that is too dear for every change. By day a hang
# is one after 120 s.
BY_DAY := -m "not night" -o faulthandler_timeout=120
# Files go to whoever is free, the longest first (tests/durations.json; make test ARGS=--write-durations).
HOW = -n $(JOBS) --dist loadfile --no-loadscope-reorder -o console_output_style=classic \
	--durations 20 --durations-min 1
PYTEST = $(VENV)/python -m tests.support.suite.run $(HOW)
COMPILE_LOCK := $(VENV)/uv pip compile --universal --python-version 3.10 \
	--generate-hashes --no-header --no-annotate --no-python-downloads --quiet

.DEFAULT_GOAL := help
.PHONY: help venv demo trace quick test test-changed night test-fleet live screenshots cast shots faults simulate fuzz bench coverage wheel docs lint lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-12s  %s\n' "$$name" "$$text"; done

venv: ## make .venv from the lock (nothing to do if it fits)
	@$(PYTHON) deploy/bootstrap/bootstrap.py

demo: ## a simulated fleet, Kafka and ClickHouse on this machine; figures in the terminal
	@$(PYTHON) deploy/bootstrap/bootstrap.py local
	@$(VENV)/kvlens demo $(ARGS)

trace: ## the public conversation trace for kvlens whatif, as build/conversation.jsonl
	@$(PYTHON) deploy/bootstrap/bootstrap.py local
	@mkdir -p build && $(VENV)/python -m tests.support.inputs.whole_trace build/conversation.jsonl

quick: JOBS = 2
# Few files take most of the time; `make test` has them.
FILE_SECONDS ?= 3
quick: lint ## lint, and the unit tests of all files that take no longer than 3 s: before every commit
	$(PYTEST) $(BY_DAY) --file-seconds $(FILE_SECONDS) tests/unit $(ARGS)

# Once, before processes that would all get or compile the same. Without a browser, tests of the page fail with that reason.
.PHONY: parts
parts: venv
	@$(VENV)/python deploy/bootstrap/browser.py & $(VENV)/python -m tests.support.suite.jars & \
		$(VENV)/python -m tests.support.suite.compiled; ended=$$?; wait; exit $$ended

test: parts ## what every change must pass, JOBS at a time (4: they mostly wait); gets a Chromium if there is none
	$(PYTEST) $(BY_DAY) $(ARGS)

BASE ?= HEAD
test-changed: parts ## what guards the paths that differ from BASE (a revision), cases of the night too
	$(VENV)/python -m tests.support.suite.changed $(BASE) $(HOW) $(ARGS)

night: parts fleet-parts ## everything: all cases and seeds, a hundred faults, fuzz, real parts; hours (ARGS are for the cases)
	@$(VENV)/python -m tests.support.suite.whole_night $(HOW) -rs $(ARGS)

# Names what this machine lacks in a line, and again at the end (-rs); the rest runs.
.PHONY: fleet-parts
fleet-parts: venv
	@$(VENV)/python -m tests.fleet.real_parts
	@$(VENV)/python -m tests.fleet.clickhouse.library

test-fleet: JOBS = 2
test-fleet: fleet-parts ## real API server, Helm, brokers, ClickHouse; builds them once, twenty minutes of CPU
	@$(VENV)/python -m tests.support.suite.compiled
	$(PYTEST) -rs tests/fleet $(ARGS)

live: venv ## real vLLM engines on the CPU, fetched once (3 GB each); ARGS="0.21.0 0.32.0" names versions
	@$(VENV)/python -m tests.live.run $(ARGS)

screenshots: venv ## regenerate the screenshots of the README, from a demo of five minutes
	@$(VENV)/python deploy/bootstrap/browser.py
	$(VENV)/python -m tests.system.browser.screenshots

cast: venv ## re-record the demo's terminal for the README, from a demo of five minutes
	$(VENV)/python -m tests.system.cast

shots: venv ## screenshots of every board with 7 and with 500 replicas, light, dark, phone, in build/shots
	@$(VENV)/python deploy/bootstrap/browser.py
	$(VENV)/python -m tests.system.browser.shots

faults: venv ## a campaign of faults, half an hour; ARGS="--seed N --faults N --kinds REGEX", --list shows the kinds
	@$(VENV)/python -m tests.system.faults.campaign $(ARGS)

simulate: venv ## the product in virtual time, over lists, under faults; ARGS="--seed N --schedules N --seconds N"
	@$(VENV)/python -m tests.support.suite.compiled
	@$(VENV)/python -m tests.simulation $(ARGS)

fuzz: venv ## damaged payloads through all decoders and on to the worker; ARGS="--count 1000000 --seed 7"
	$(VENV)/python -m tests.fuzz.run $(ARGS)

bench: venv ## speed and memory; figures go to build/bench.json
	$(VENV)/python tests/bench/run.py $(ARGS)

coverage: venv ## lines that unit and integration tests reach, by room; an hour; ARGS="tests/unit/connectors" for fewer
	@$(VENV)/python -m tests.support.suite.reached $(ARGS)

wheel: venv ## build the wheel, install it in an empty environment in build/wheel, run the demo there for 30 s
	@sh deploy/bootstrap/wheel.sh

docs: venv ## the documentation as a searchable site, in build/site; a link that leads nowhere is an error
	@sh deploy/site/build.sh

lint: venv ## style, types, import rules, generated files
	@$(MAKE) --no-print-directory --jobs 2 types others

# Two at a time, as each of them keeps one core busy.
.PHONY: types others
types:
	$(VENV)/mypy

others:
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/lint-imports --no-cache
	$(VENV)/python -m pipeline.generated --check

lock: venv ## resolve pyproject.toml again; ARGS="--upgrade" or ARGS="--upgrade-package NAME" for newer versions
	$(COMPILE_LOCK) pyproject.toml $(ARGS) --extra otlp --output-file deploy/locks/runtime.txt
	$(COMPILE_LOCK) --group build $(ARGS) --output-file deploy/locks/build.txt
	$(COMPILE_LOCK) --group docs $(ARGS) --output-file deploy/locks/docs.txt
	$(COMPILE_LOCK) pyproject.toml $(ARGS) --extra local --extra otlp --group build --output-file deploy/locks/local.txt
	$(COMPILE_LOCK) pyproject.toml $(ARGS) --extra local --extra otlp --group dev --output-file deploy/locks/dev.txt

clean: ## remove what was made, .venv included; data in .kvlens stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find connectors pipeline schemas tests deploy -name __pycache__ -prune -exec rm -rf {} +
