"""Do sampled texts depend on anything but their request? `make invariance` prints the table; tests use the parts.

Every line compares the same documents, answered in two ways, text by text. The questions are GSM8K's own where the
folder is given, else short ones of the same form.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import SHARED, job_of, write_jsonl

EXPECTED = 5 * 20 * 4 + 5 * 4  # texts that `make invariance` compares
Texts = dict[str, list[str]]  # question to its answers


@dataclass
class Study:
    """`rows` of GSM8K to answer, `train` for the shots, `settings` of the job; `rounding` is of the last answers."""

    folder: Path
    rows: list[dict[str, str]]
    train: list[dict[str, str]]
    settings: tuple[str, ...]
    rounding: dict[str, Any] = field(default_factory=dict)

    def job(self, name: str, rows: list[dict[str, str]], *overrides: str) -> Any:
        write_jsonl(self.folder / name / "test.jsonl", rows)
        write_jsonl(self.folder / name / "train.jsonl", self.train)
        replaced = {o.partition("=")[0] for o in overrides}
        kept = [s for s in self.settings if s.partition("=")[0] not in replaced]
        return job_of("task=gsm8k", f"task.data={self.folder / name}", *kept, *overrides)

    def answers(self, name: str, rows: list[dict[str, str]], *overrides: str) -> Texts:
        from evalsweep.engine.evaluate import evaluate

        found = evaluate(self.job(name, rows, *overrides), lambda *_: None)
        self.rounding = found.decoding["rounding"]
        return _texts(found.samples)

    def answers_elsewhere(self, name: str, rows: list[dict[str, str]]) -> Texts:
        """The same in a process of its own."""
        self.job(name, rows)  # writes the data
        code = (
            "import json, sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import invariance as i\n"
            "s = i.Study(Path(sys.argv[2]), [], json.loads(sys.argv[5]), tuple(json.loads(sys.argv[4])))\n"
            "rows = [json.loads(x) for x in (s.folder / sys.argv[3] / 'test.jsonl').read_text().splitlines()]\n"
            "print('TEXTS' + json.dumps(s.answers(sys.argv[3], rows)))"
        )
        arguments = [
            str(Path(__file__).parent),
            str(self.folder),
            name,
            json.dumps(self.settings),
            json.dumps(self.train),
        ]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
        texts: Texts = json.loads(done.stdout.partition("TEXTS")[2])
        return texts

    def answers_beside_another_task(self, rows: list[dict[str, str]]) -> Texts:
        """lm_eval runs the bundled task and this one in one call, all requests of both in one list."""
        import lm_eval
        from lm_eval.tasks import TaskManager

        from evalsweep.engine.models import resident
        from evalsweep.engine.models.kept import Kept
        from evalsweep.engine.tasks import harness
        from evalsweep.responses import Responses

        job = self.job("beside", rows)
        other = harness.build(job_of("task=sample", *[s for s in self.settings if not s.startswith("task.")]))
        built = harness.build(job)
        results = lm_eval.evaluate(
            lm=Kept(resident.load(job), job, Responses(), lambda *_: None),
            task_dict=TaskManager(include_defaults=False).load([other.root, built.root]),
            bootstrap_iters=0,
            log_samples=True,
        )
        return {row["doc"]["question"]: list(map(str, row["resps"][0])) for row in results["samples"][built.name]}


def _texts(samples: list[Any]) -> Texts:
    return {s.prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:"): s.responses for s in samples}


def identical(a: Texts, b: Texts) -> tuple[int, int]:
    """How many answers are equal, of how many that both have."""
    pairs = [(x, y) for q in a.keys() & b.keys() for x, y in zip(a[q], b[q], strict=True)]
    return sum(x == y for x, y in pairs), len(pairs)


def comparisons(study: Study, few: int) -> dict[str, Callable[[], Texts]]:
    """Other ways to answer the study's documents, the last `few` settings of a kind; all against one batch of 16."""
    rows = study.rows
    half = len(rows) // 2
    return {
        "batch size 1": lambda: study.answers("one", rows, "model.batch_size=1"),
        "batch size 4": lambda: study.answers("four", rows, "model.batch_size=4"),
        "documents reversed": lambda: study.answers("reversed", rows[::-1]),
        f"task.limit={few}": lambda: study.answers("limited", rows, f"task.limit={few}"),
        "two processes": lambda: {
            **study.answers_elsewhere("first", rows[:half]),
            **study.answers_elsewhere("second", rows[half:]),
        },
        "another task in the run": lambda: study.answers_beside_another_task(rows),
    }


def main() -> int:
    def read(split: str) -> list[dict[str, str]]:
        return [json.loads(line) for line in (SHARED / "gsm8k" / f"{split}.jsonl").read_text().splitlines()]

    if not SHARED.is_dir():
        print(f"invariance: GSM8K is needed in {SHARED}", file=sys.stderr)
        return 2
    settings = ("temperature=0.7", "task.samples=4", "task.num_fewshot=1", "task.max_gen_toks=48", *sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), read("test")[:20], read("train")[:40], ("model.batch_size=16", *settings))
        reference = study.answers("reference", study.rows)
        same = total = 0
        print(f"GSM8K, 20 documents, {' '.join(settings)}; each against batch size 16")
        for name, answer in comparisons(study, few=5).items():
            equal, of = identical(reference, answer())
            ties = ""
            if not {"processes", "another"} & set(name.split()):
                seen = study.rounding
                ties = f"   {seen['near_ties']:.0f} near-ties in {seen['tokens']:.0f} tokens"
                ties += f", {seen['flipped']:.0f} decided otherwise than in the batch"
            print(f"{name:<24} {equal:>4} of {of:>4} texts identical{ties}", flush=True)
            same, total = same + equal, total + of
    print(f"invariance: {same} of {total} texts identical")
    return int(not same == total == EXPECTED)


if __name__ == "__main__":
    sys.exit(main())
