"""`evalsweep audit`: one job looked at before it is paid for."""

from __future__ import annotations

import json
import weakref

import pytest
from completions_server import serving
from conftest import job_of, only

from evalsweep.engine import evaluate as engine
from evalsweep.engine.audit import audit
from evalsweep.engine.models import causal, loading, resident
from evalsweep.record import Audit, Difference
from evalsweep.report import audit as page


def found(*overrides: str) -> Audit:
    return audit(job_of("task.limit=3", *overrides), "t=0.7 s=0 sample", lambda *_: None)


def test_a_clean_job_has_no_noise(model_folder):
    clean = found("temperature=0.7", "task.samples=2")
    conditions = ["run again", "batch size 1", "documents reversed"]
    assert clean.differences == [Difference(c, 6, 0, 3, 0, 0.0, None) for c in conditions]
    assert clean.skipped == {"float32": "it is what runs already"}
    assert clean.noise_floor == 0.0
    assert len(clean.tokens) > 50
    assert clean.prompt.endswith("Answer:")
    assert len(clean.shots) == 4


def test_choices_are_compared_by_their_log_likelihoods():
    choice = found("task=sample_choice", "model.dtype=bfloat16")
    assert [d.condition for d in choice.differences] == ["run again", "batch size 1", "documents reversed", "float32"]
    assert all(d.texts is None for d in choice.differences)
    by_condition = {d.condition: d for d in choice.differences}
    assert by_condition["run again"].largest == 0.0
    assert by_condition["float32"].largest > 0.0, "16 bits round"


def test_noise_is_measured_and_its_floor_is_the_largest_move_of_the_mean(monkeypatch):
    """An engine that answers otherwise each time it is asked, as a busy server may."""
    original, calls = engine._run, []

    def noisy(lm, built, job, system):
        results = original(lm, built, job, system)
        calls.append(1)
        for row in results["samples"]["sample"][: len(calls) - 1]:
            row["resps"][0][0] += " and so on"
            row["exact_match"] = 1.0 - row["exact_match"]
        results["results"]["sample"]["exact_match,number"] = sum(
            row["exact_match"] for row in results["samples"]["sample"]
        ) / len(results["samples"]["sample"])
        return results

    monkeypatch.setattr(engine, "_run", noisy)
    noise = found()
    assert [(d.texts, d.scores) for d in noise.differences] == [(1, 1), (2, 2), (3, 3)]
    assert noise.noise_floor == max(abs(d.mean) for d in noise.differences) > 0.3
    assert "noise floor 0.3333" in page.terminal(noise) or "noise floor 0.6667" in page.terminal(noise)


def test_a_server_is_asked_one_by_one_and_its_prompt_is_text(model_folder):
    with serving(model_folder) as (url, seen):
        served = found("model=server", f"model.base_url={url}", "model.pretrained=smol")
        assert [d.condition for d in served.differences] == ["run again", "one request at a time", "documents reversed"]
        assert served.skipped == {"float32": "the server decides"}
        assert served.tokens == []
        assert served.noise_floor == 0.0
        prompts = [request["body"]["prompt"] for request in seen]
    assert served.prompt == prompts[0] or served.prompt in prompts


def test_the_page_shows_what_the_model_gets_without_acting_on_the_terminal():
    whole = found("model.max_length=60")
    text = page.terminal(whole, 80)
    assert "  | Question: What is 11 * 4?\n  | Answer:\n" in text
    assert "stop        '\\n', '<|im_end|>'" in text
    assert "cut to fit  3 of 3 prompts" in text
    assert f"{len(whole.tokens)} tokens: {whole.tokens[0]}" in text
    assert len(whole.tokens) == 52, "as the model gets it: after the cut"
    hostile = page.terminal(Audit(**{**whole.__dict__, "prompt": "a\x1b[31mred\x00 [bold]x[/bold]"}), 80)
    assert "\x1b" not in hostile and "\\x1b[31mred\\x00 [bold]x[/bold]" in hostile


def test_the_command_prints_the_audit_and_leaves_it_as_json(run, tmp_path):
    done = run("audit", "task.limit=2", "temperature=0.5", "hydra.run.dir=here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("audit of t=0.5 s=0 sample: 2 documents, exact_match,number ")
    assert "noise floor 0: nothing but the model, the seed and the settings moved a score here" in done.stdout
    saved = json.loads(only(tmp_path.glob("here/audit.json")).read_text())
    assert (saved["schema"], saved["noise_floor"], saved["documents"]) == (3, 0.0, 2)
    assert [d["condition"] for d in saved["differences"]] == ["run again", "batch size 1", "documents reversed"]
    assert (tmp_path / "here" / "evalsweep.log").is_file()


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("audit", "-m", "seed=0,1"), "looks at one job: give one value for each key"),
        (("audit", "task=gsm9k"), "no such task"),
        (("audit", "task.data=nowhere"), "there is no such folder"),
        (("audited",), "is no command and no key=value (did you mean 'audit'?); commands are audit"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, argv, told):
    done = run(*argv)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_has_a_page_of_help(run):
    done = run("audit", "--help")
    assert done.returncode == 0
    assert "evalsweep audit KEY=VALUE" in done.stdout


def test_the_first_model_is_gone_before_float32_is_loaded(monkeypatch):
    """Two at once would need the room of both."""
    loaded: list[weakref.ref[causal.Transformers]] = []
    original = loading.load

    def load(job):
        assert [ref for ref in loaded if ref() is not None] == []
        made = original(job)
        loaded.append(weakref.ref(made.lm))
        return made

    monkeypatch.setattr(loading, "load", load)
    resident._resident.clear()
    found("model.dtype=bfloat16", "task.limit=1")
    assert len(loaded) == 2
