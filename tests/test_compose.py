"""Command lines to jobs, and refusals in one line. Fails if a Hydra upgrade breaks what evalsweep leans on."""

from __future__ import annotations

import pytest
from conftest import composed, job_of

from evalsweep import compose
from evalsweep.engine.models.backends import acting
from evalsweep.errors import BadInput
from evalsweep.identity import config_hash


def names(*args: str) -> list[str]:
    with composed(*args) as plan:
        return [job.name for job in plan.jobs]


def test_any_number_is_an_option_of_seed_and_temperature():
    job = job_of("seed=7", "temperature=0.35")
    assert (job.seed, job.temperature, job.decoding.do_sample) == (7, 0.35, True)
    assert job_of("temperature=1e-1").temperature == 0.1
    assert job_of("temperature=.5").temperature == 0.5
    assert job_of("seed='8'").seed == 8


def test_the_main_command_is_six_jobs():
    expected = [f"t={t} s={s} sample" for s in (0, 42, 123) for t in (0, 0.2)]
    assert names("-m", "seed=0,42,123", "temperature=0,0.2") == expected


def test_ranges_of_seeds_and_temperatures():
    assert names("-m", "seed=range(0,3)") == ["s=0 sample", "s=1 sample", "s=2 sample"]
    assert names("-m", "temperature=range(0,0.8,0.2)") == ["t=0 sample", "t=0.2 sample", "t=0.4 sample", "t=0.6 sample"]


def test_experiments_are_whole_sweeps():
    assert len(names("experiment=temperatures")) == 12
    stability = names("-m", "experiment=stability")
    assert len(stability) == 15
    assert stability[0] == "s=0 mmlu"


@pytest.mark.parametrize("limit", ["1.0", "0.002"])
def test_a_limit_is_a_number_of_documents_and_no_fraction(limit):
    with pytest.raises(BadInput, match=f"task.limit={limit}"):
        job_of(f"task.limit={limit}")


def test_own_options_are_added_from_a_folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("name: mine\nkind: hf\npretrained: me/mine\n")
    (tmp_path / "temperature").mkdir()
    (tmp_path / "temperature" / "nucleus.yaml").write_text(
        "# @package _global_\ntemperature: 0.8\ndecoding: {do_sample: true, top_p: 0.9}\n"
    )
    job = job_of("--config-dir", str(tmp_path), "model=mine", "temperature=nucleus")
    assert (job.model.pretrained, job.temperature, job.decoding.top_p) == ("me/mine", 0.8, 0.9)


def test_sweep_directories_are_named_from_values():
    with composed("-m", "seed=7,8", "temperature=0.20") as plan:
        assert [job.directory.rpartition("-")[0] for job in plan.jobs] == ["t=0.2,seed=7,sample", "t=0.2,seed=8,sample"]


def test_folders_with_spaces_and_letters_of_any_alphabet_work(tmp_path):
    own = tmp_path / "mein Ordner ü"
    (own / "model").mkdir(parents=True)
    (own / "model" / "mine.yaml").write_text("name: mine\nkind: hf\npretrained: me/mine\n")
    assert job_of("--config-dir", str(own), "model=mine").model.name == "mine"


@pytest.mark.parametrize("text", ["a b", "it's", "x=1,y", "a\\b", "a\\'b", "end\\", "ü[{", "$x #"])
def test_any_path_survives_the_quoting_of_overrides(text):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (parsed,) = OverridesParser.create().parse_overrides([f"key={compose.quoted(text)}"])
    assert parsed.value() == text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "name: mine\nkind: hf\npretrained: x\nbatchsize: 3\n",
            "model has no 'batchsize' (did you mean 'batch_size'?)",
        ),
        ("name: [", "is not valid YAML"),
    ],
)
def test_a_mistake_in_an_own_file_of_options_is_one_line(tmp_path, content, told):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(content)
    with pytest.raises(BadInput) as refusal:
        job_of("--config-dir", str(tmp_path), "model=mine")
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_text_of_a_prompt_file_belongs_to_the_job_and_not_its_path(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("Be brief.")
    first = job_of("prompt=file", f"prompt.file={path}")
    assert first.prompt.system == "Be brief."
    path.write_text("Be long.")
    second = job_of("prompt=file", f"prompt.file={path}")
    assert config_hash(acting(first)) != config_hash(acting(second))


REFUSED = {
    "temperature=-1": ["a number of 0 or more", "temperature=0.2"],
    "temperature=abc": ["a number of 0 or more", "temperature=0.2"],
    "temperature=nan": ["a number of 0 or more"],
    "seed=1.5": ["a whole number from 0 to 4294967295", "seed=7"],
    "seed=-3": ["a whole number"],
    "seed=null": ["a whole number"],
    "task=gsm9k": ["did you mean 'gsm8k'?", "sample_choice", "task=gsm8k"],
    "task=null": ["names no option"],
    "model=smolm2": ["did you mean 'smollm2'?", "model=smollm2"],
    "model.dtyp=float32": ["did you mean 'dtype'?", "model.dtype=float32"],
    "modle.dtype=float32": ["did you mean 'model'?"],
    "model.dtype=float31": ["auto, float32, bfloat16, float16"],
    "task.limit=abc": ["a whole number or null", "task.limit=10"],
    "task.limit=1.5": ["a whole number or null"],
    "model.parallelize=perhaps": ["true or false"],
    "task.k=x": ["a list of whole numbers"],
    "+foo=1": ["there is no 'foo'"],
    "+model.peft=DIR": ["model has no 'peft'", "allowed: name, kind, pretrained"],
    "+model.load_in_4bit=true": ["model has no 'load_in_4bit'"],
    "+task.max_tokens=5": ["task has no 'max_tokens' (did you mean 'max_gen_toks'?)"],
    "+prompt.sytem=x": ["prompt has no 'sytem' (did you mean 'system'?)", "prompt.system=x"],
    "+decoding.best_of=3": ["decoding has no 'best_of'"],
    "task.samples_of={smple:20}": ["the sweep has no such task (did you mean 'sample'?)"],
    "-m task=sample,gsm8k task.samples_of={sample:2,humanevl:20}": ["samples_of={humanevl: 20}", "sample, gsm8k"],
    "+hydra.sweeep.dir=x": ["hydra has no 'sweeep' (did you mean 'sweep'?)"],
    "+hydra.sweep.dirr=x": ["hydra.sweep has no 'dirr' (did you mean 'dir'?)"],
    "+hydra.nope=1": ["hydra has no 'nope'"],
    "hydra.job.env_set.A=b": ["takes new keys with a plus", "+hydra.job.env_set.A=b"],
    "+tracking.url=x": ["tracking has no 'url' (did you mean 'uri'?)"],
    "model=server model.base_url=http://x model.pretrained=m model.extra_body.temperature=1": ["is set by temperature"],
    "model=server model.base_url=http://x model.pretrained=m model.extra_body.seed=1": ["is set by seed"],
    "model=server model.base_url=http://x model.pretrained=m model.extra_body.stop=[a]": ["the task's stop strings"],
    "seed=1,2": ["-m seed=1,2"],
    "task=lm_eval": ["task.name must be given"],
    "model=hf": ["model.pretrained (a folder or a hub id) is needed"],
    "model=server": ["model.base_url"],
    "prompt=text": ["prompt.system is needed"],
    "fewshot=file": ["fewshot.path"],
    "seed": ["is not key=value"],
    "model=[a": ["is not key=value"],
    "-m seed=0,abc": ["seed=abc", "a whole number"],
    "-m model=hf,smolm2": ["model=smolm2", "did you mean 'smollm2'?"],
    "-m temperature=0.2,0.20": ["twice"],
    "--config-dir nowhere": ["is not a folder"],
    "--config-name nope": ["there is no such configuration"],
    "seed=[0,42]": ["-m seed=0,42"],
    "temperature=[0,0.2]": ["-m temperature=0,0.2"],
    "hydra.sweep.subdir=same -m seed=0,1": ["evalsweep's own"],
    "hydra.job.chdir=true": ["leave it out"],
    "hydra/launcher=nope": ["no such hydra/launcher"],
    "prompt=file prompt.system=x prompt.file=y": ["keep one"],
    "prompt=file prompt.file=nowhere.txt": ["there is no such file"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_refusals_name_the_value_what_is_allowed_and_what_works(line):
    with pytest.raises(BadInput) as refusal:
        names(*line.split())
    text = str(refusal.value)
    assert "\n" not in text
    for part in REFUSED[line]:
        assert part in text
    if "-m" not in line:
        assert line.split()[-1].partition("=")[0].lstrip("+").rpartition(".")[2] in text


def test_the_examples_in_refusals_work():
    for line in ("task.limit=x", "model.dtype=x", "task.samples=0", "model.batch_size=0", "model.device=x", "seed=x"):
        with pytest.raises(BadInput) as refusal:
            job_of(line)
        example = str(refusal.value).rpartition("for example ")[2].partition(" or,")[0]
        job_of(*example.split())


@pytest.mark.parametrize("given", ["model.args={a: {b: 1}, c: [x]}", "model.args.a.b=1", "+model.args.a.b=1"])
def test_mappings_that_are_the_users_own_take_any_key_with_and_without_a_plus(given):
    assert job_of("model=hf", "model.pretrained=x", given).model.args["a"] == {"b": 1}
