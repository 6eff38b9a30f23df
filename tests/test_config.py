from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace

import pytest
from conftest import ROOT, composed, job_of
from omegaconf import OmegaConf

from evalsweep.compose import check
from evalsweep.config import JobConfig, decoding_at, parse_temperature, samples_at
from evalsweep.engine.benchmarks.scorers import sizes
from evalsweep.engine.models import backends
from evalsweep.engine.models.backends import acting
from evalsweep.errors import BadInput
from evalsweep.identity import config_hash, directory_name, run_name, varying, without_seed


@pytest.mark.parametrize("path", sorted((ROOT / "conf" / "temperature").glob("*.yaml")), ids=lambda p: p.stem)
def test_temperature_files_say_what_any_other_number_would(path):
    written = OmegaConf.to_container(OmegaConf.load(path))
    assert written == decoding_at(float(path.stem))


def test_temperature_zero_is_greedy_with_one_beam_and_others_sample_plainly():
    greedy, warm = decoding_at(0.0)["decoding"], decoding_at(0.35)["decoding"]
    assert (greedy["do_sample"], greedy["num_beams"]) == (False, 1)
    assert warm["do_sample"]
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0}
    assert neutral.items() <= warm.items()


def test_a_range_of_temperatures_is_rounded_to_what_was_meant():
    assert parse_temperature("0.6000000000000001") == 0.6


@pytest.mark.parametrize("text", ["-1", "abc", "nan", "inf", ""])
def test_what_is_no_temperature_is_refused(text):
    with pytest.raises(ValueError, match="a number of 0 or more"):
        parse_temperature(text)


BAD = {
    "seed=-1": {"seed": -1},
    "seed=4294967296": {"seed": 2**32},
    "temperature=-0.5": {"temperature": -0.5},
    "temperature=nan": {"temperature": float("nan")},
    "decoding.do_sample=false": {"temperature": 0.5},
    "decoding.do_sample=true temperature=0": {"decoding": {"do_sample": True}},
    "decoding.top_p=0.0": {"decoding": {"top_p": 0.0}},
    "decoding.num_beams=4": {"decoding": {"num_beams": 4}},
    "decoding.repetition_penalty=nan": {"decoding": {"repetition_penalty": float("nan")}},
    "task.k=[2] task.samples=1": {"task": {"k": [2]}},
    "task.k=[1]": {"task": {"k": [1]}},
    "task.k= task.samples=10": {
        "task": {"name": "humaneval", "samples": 5, "k": [1, 10]},
        "temperature": 0.5,
        "decoding": {"do_sample": True},
    },
    "on_truncation=drop": {"on_truncation": "drop"},
    "on_truncation=error model=server model.tokenizer": {
        "on_truncation": "error",
        "model": {"kind": "server", "base_url": "http://x/v1", "pretrained": "m"},
    },
    "fewshot.name=random": {"fewshot": {"name": "random"}},
    "model.tie_tolerance=-1": {"model": {"tie_tolerance": -1.0}},
    "task.limit=0": {"task": {"limit": 0}},
    "task.num_fewshot=-1": {"task": {"num_fewshot": -1}},
    "task.max_gen_toks=8192": {"task": {"max_gen_toks": 8192}},
    "task.unsafe_code=yes": {"task": {"unsafe_code": "yes"}},
    "model.dtype=float8": {"model": {"dtype": "float8"}},
    "model.device=gpu": {"model": {"device": "gpu"}},
    "model.batch_size=0": {"model": {"batch_size": 0}},
    "model.kind=gguf": {"model": {"kind": "gguf"}},
    "fewshot.path=": {"fewshot": {"name": "file"}},
    "fewshot=fixed fewshot.path=x": {"fewshot": {"path": "x"}},
    "prompt=text": {"prompt": {"name": "text"}},
    "prompt=none prompt.system=...": {"prompt": {"system": "hi"}},
    "tracking.name=wandb": {"tracking": {"name": "wandb"}},
}


@pytest.mark.parametrize("given", BAD)
def test_validation_refuses_what_the_types_let_through(given):
    job = job_of()
    for key, value in BAD[given].items():
        changed = replace(getattr(job, key), **value) if isinstance(value, dict) else value
        job = replace(job, **{key: changed})
    with pytest.raises(BadInput) as refusal:
        check(job)
    line = str(refusal.value)
    assert "\n" not in line
    assert all(word.partition("=")[0] in line for word in given.split())


def test_the_default_configuration_is_valid():
    check(job_of())


def test_jobs_share_a_directory_only_where_they_are_the_same_job():
    jobs = [
        job_of(),
        job_of("seed=1"),
        job_of("temperature=0.2"),
        job_of("prompt=helpful_assistant"),
        job_of("task.limit=5"),
        job_of("model.batch_size=1"),
        job_of("decoding.repetition_penalty=1.1"),
    ]
    names = [directory_name(acting(job)) for job in jobs]
    assert len(set(names)) == len(jobs)
    assert directory_name(acting(job_of("tracking=off"))) == names[0], "where runs are mirrored to moves no score"


def test_the_hash_of_a_configuration_is_stable():
    job = acting(job_of("model.batch_size=4", "decoding.repetition_penalty=1.1"))
    assert config_hash(job) == config_hash(dict(reversed(job.items())))


def test_what_differs_is_told_in_as_few_keys_as_possible():
    def keys(*command_lines: str) -> list[str]:
        return varying([asdict(job_of(*line.split())) for line in command_lines])

    assert keys("", "") == []
    assert keys("seed=1", "seed=2") == ["seed"]
    assert keys("temperature=0", "temperature=0.2") == ["temperature"], "the decoding goes with the temperature"
    assert keys("task=sample", "task=gsm8k") == ["task.name"], "num_fewshot and metric go with the task"
    assert keys("task.limit=1", "task.limit=2") == ["task.limit"]
    assert keys("prompt=none", "prompt=helpful_assistant") == ["prompt.name"]


def test_run_names_put_first_what_differs():
    job = asdict(job_of("temperature=0.2", "seed=42", "task=gsm8k"))
    assert run_name(job, ["task.name", "seed", "temperature"]) == "t=0.2 s=42 gsm8k"
    assert run_name(job, ["prompt.name", "seed"]) == "s=42 prompt=none gsm8k"


def test_resampled_shots_belong_to_the_seed_and_fixed_ones_to_the_cell():
    def cell(*overrides: str) -> dict[str, object]:
        return without_seed(acting(job_of(*overrides)))

    assert cell("fewshot=resampled", "seed=1") == cell("fewshot=resampled", "seed=2")
    assert cell("seed=1") == cell("seed=2")
    assert cell("fewshot.seed=1") != cell("fewshot.seed=2")


@pytest.mark.parametrize(
    "idle",
    [
        ("decoding.top_p=0.9",),
        ("decoding.top_k=50", "decoding.min_p=0.1"),
        ("model.base_url=http://ann:passw0rd@localhost:1/v1",),
        ("model.extra_body.api_key=passw0rd",),
        ("model.num_concurrent=9",),
        ("model.retries=1", "model.timeout=5"),
        ("task.samples=20",),
    ],
    ids=" ".join,
)
def test_settings_that_cannot_act_are_named_and_do_not_make_another_job(idle):
    plain, given = job_of(), job_of(*idle)
    assert config_hash(acting(given)) == config_hash(acting(plain))
    assert "passw0rd" not in str(backends.idle(given))
    if not idle[0].startswith(("task", "model.retries", "model.extra_body")):
        assert [line.partition(" ")[0].partition("=")[0] for line in backends.idle(given)] == [
            o.partition("=")[0] for o in idle
        ]


def test_the_same_settings_make_another_job_where_they_act():
    at = ("temperature=0.7",)
    server = ("model=server", "model.pretrained=m", "model.base_url=http://localhost:1/v1/completions")
    for base, given in (
        (at, "decoding.top_p=0.9"),
        (at, "task.samples=20"),
        (server, "model.num_concurrent=9"),
        ((), "decoding.repetition_penalty=1.2"),
    ):
        assert config_hash(acting(job_of(*base))) != config_hash(acting(job_of(*base, given))), given
        assert backends.idle(job_of(*base, given)) == []


def test_a_key_that_a_later_release_adds_renames_no_job(monkeypatch):
    before = config_hash(acting(job_of("temperature=0.7", "task.limit=5")))
    later = job_of("temperature=0.7", "task.limit=5")

    @dataclass
    class LaterTask(type(later.task)):
        brand_new: int = 3

    @dataclass
    class LaterJob(JobConfig):
        task: LaterTask = field(default_factory=LaterTask)

    monkeypatch.setattr(backends, "JobConfig", LaterJob)
    values = {f.name: getattr(later, f.name) for f in fields(later)}
    values["task"] = LaterTask(**{f.name: getattr(later.task, f.name) for f in fields(later.task)})
    assert config_hash(acting(LaterJob(**values))) == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("model.adapter=DIR", "acts on embedded, hf, vllm"),
        ("model.dtype=float32", "cannot act on model.kind=server"),
        ("model.args={a: 1}", "cannot act on model.kind=server"),
        ("model.revision=x", "cannot act on model.kind=server"),
    ],
)
def test_settings_that_were_meant_to_change_the_model_are_refused_where_they_cannot(given, told):
    with pytest.raises(BadInput, match="cannot act") as refusal:
        job_of("model=server", "model.pretrained=m", "model.base_url=http://localhost:1/v1/completions", given)
    assert told in str(refusal.value)


def test_samples_may_differ_by_task_in_one_sweep():
    with composed("-m", "task=gsm8k,humaneval", "temperature=0.7", "task.samples_of={humaneval: 20, gsm8k: 5}") as plan:
        assert {job.config.task.name: job.config.task.samples for job in plan.jobs} == {"gsm8k": 5, "humaneval": 20}


def test_a_grid_with_temperature_zero_has_one_greedy_answer_there_and_all_elsewhere():
    with composed("-m", "seed=0,42,123", "temperature=0,0.2", "task=humaneval", "task.samples=20") as plan:
        found = {(job.config.temperature, samples_at(job.config), tuple(sizes(job.config))) for job in plan.jobs}
    assert found == {(0.0, 1, (1,)), (0.2, 20, (1, 5, 10))}


@pytest.mark.parametrize(
    "given",
    [
        ("model.template_args={enable_thinking: false}",),
        ("task.sandbox_packages=[scipy]",),
        ("task.k=[1]", "task=gsm8k"),
        ("fewshot.seed=7", "task.num_fewshot=0"),
        ("fewshot=resampled", "task.num_fewshot=0"),
    ],
)
def test_what_nothing_reads_makes_no_other_job(given):
    base = [word for word in given if word in ("task.num_fewshot=0", "task=gsm8k")]
    assert config_hash(acting(job_of(*base))) == config_hash(acting(job_of(*given)))


def test_two_files_with_the_same_prompt_are_one_job(tmp_path):
    hashes = set()
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("Be brief.")
        hashes.add(config_hash(acting(job_of("prompt=file", f"prompt.file={tmp_path / name}"))))
    assert len(hashes) == 1
