"""Generated text depends on its request alone, is drawn honestly, and greedy text is transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import job_of
from scipy import stats

from evalsweep.engine.models import resident
from evalsweep.engine.models.draw import Prompted, Row, Settings
from evalsweep.engine.models.forward import Forward
from evalsweep.engine.models.generation import Generator
from evalsweep.engine.models.noise import LARGEST, SMALLEST, gumbel, halves, philox, stream_key
from evalsweep.engine.models.requests import CAPPED, ENDED, GENERATE, STOPPED, Request

PROMPTS = [
    "Question: What is 2 + 2?\nAnswer: 4\n\nQuestion: What is 3 + 3?\nAnswer:",
    "The capital of France is",
    "Once upon a time there was a",
    "def add(a, b):\n    return",
    "My name is",
    "Question: Name three animals.\nAnswer:",
]


@pytest.fixture(scope="module")
def lm():
    job = job_of()
    return resident.load(job).lm


def settings(**changes):
    given = {"temperature": 0.8, "max_gen_toks": 12, "stop": (), "end_tokens": {2}, "tolerance": 1e-3}
    given |= changes
    return Settings(**{**given, "end_tokens": frozenset(given["end_tokens"])})


def request(prompt, sample=0, seed=1):
    return Request(GENERATE, prompt, sample=sample, seed=seed)


def texts(lm, prompts=PROMPTS, samples=1, rows=4, grown=None, model=None, ends=None, seed=1, **changes):
    """(prompt, sample) to its tokens; `grown` gets the rows."""
    found: dict[tuple[str, int], list[int]] = {}
    given = settings(**changes)
    wanted = [Prompted(request(p, n, seed), tuple(lm.tok_encode(p)), given) for p in prompts for n in range(samples)]
    generator = Generator(Forward(model or lm.model, 2), lm.text.marked)

    def tell(row):
        key = (row.of.request.prompt, row.of.request.sample)
        assert key not in found
        found[key] = row.new
        if ends is not None:
            ends[row.of.request.prompt] = row.ended
        if grown is not None:
            grown.append(row)

    generator.generate(wanted, rows, tell)
    assert len(found) == len(wanted)
    return found


def noise(keys, step, size):
    """The noise of the `step`-th token of streams, (streams, size)."""
    steps = torch.full((len(keys),), step)
    return gumbel(torch.tensor([halves(key) for key in keys]), steps, torch.ones(len(keys), size, dtype=torch.bool))


def test_philox_gives_the_numbers_of_its_authors():
    """The known answers for philox4x32 with 10 rounds of the Random123 library, by the authors of the paper."""
    ones = 0xFFFFFFFF
    for counter, key, words in (
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ones, ones, ones, ones), (ones, ones), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ):
        found = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
        assert " ".join(f"{int(word):08x}" for word in found) == words


def test_a_token_has_the_same_noise_whatever_else_is_wanted():
    keys = torch.tensor([halves(stream_key(3, "p", n)) for n in range(5)])
    steps = torch.arange(5)
    every = torch.ones(5, 1001, dtype=torch.bool)
    whole = gumbel(keys, steps, every)
    few = torch.zeros_like(every)
    few[1, 7] = few[4, 1000] = few[4, 3] = True
    some = gumbel(keys, steps, few)
    assert torch.equal(some[few], whole[few]) and torch.isinf(some[~few]).all()
    many = every.clone()
    many[2] = False
    assert torch.equal(gumbel(keys, steps, many)[many], whole[many])
    assert float(whole.min()) >= SMALLEST and float(whole.max()) <= LARGEST
    assert torch.equal(noise([stream_key(3, "p", 4)], 4, 1001)[0], whole[4])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_draws_follow_the_softmax_at_their_temperature(temperature):
    logits = torch.tensor([1.5, 0.2, -0.7, 0.9, -2.0, 0.0]).double()
    expected = (logits / temperature).softmax(0).numpy()
    keys = [stream_key(7, f"prompt {i}", 0) for i in range(2_000)]
    draws = torch.cat([(logits / temperature + noise(keys, step, 6)).argmax(-1) for step in range(10)])
    counts = np.bincount(draws, minlength=len(logits))
    assert counts.sum() == 20_000
    assert stats.chisquare(counts, expected * 20_000).pvalue > 0.01


def test_steps_samples_seeds_and_prompts_have_noise_of_their_own():
    keys = [stream_key(*parts) for parts in ((0, "p", 0), (1, "p", 0), (0, "q", 0), (0, "p", 1))]
    first, *others = noise(keys, 0, 4096).numpy()
    second = noise(keys[:1], 1, 4096)[0].numpy()
    for shift in range(8):  # no two are one stream, shifted
        for other in (second, *others):
            assert abs(np.corrcoef(first[shift:], other[: 4096 - shift])[0, 1]) < 0.06
    assert (noise(keys[:1], 0, 4096)[0].numpy() == first).all()


def test_noise_is_standard_gumbel():
    found = noise([stream_key(3, "p", n) for n in range(5)], 5, 10_000).flatten().numpy()
    assert stats.kstest(found, "gumbel_r").pvalue > 0.01


def test_the_same_text_whatever_the_batch_the_order_and_the_company(lm):
    alone = texts(lm, rows=1, samples=3)
    assert alone == texts(lm, rows=16, samples=3)
    assert alone == texts(lm, rows=5, samples=3)
    assert alone == texts(lm, PROMPTS[::-1], rows=4, samples=3)
    few = texts(lm, PROMPTS[2:4], rows=4, samples=3)
    assert few == {k: v for k, v in alone.items() if k[0] in PROMPTS[2:4]}
    assert texts(lm, samples=1) == {k: v for k, v in alone.items() if k[1] == 0}
    assert len({tuple(v) for v in alone.values()}) > 15, "the samples differ"


def test_the_seed_and_the_temperature_reach_every_draw(lm):
    one, two = texts(lm, seed=1), texts(lm, seed=2)
    assert all(one[k] != two[k] for k in one)
    assert texts(lm, temperature=0.8) != texts(lm, temperature=0.1)


@pytest.mark.parametrize("rows", [1, 4])
def test_greedy_text_is_that_of_transformers_on_the_same_batch(lm, rows):
    ours = texts(lm, rows=rows, temperature=0.0, max_gen_toks=24)
    for start in range(0, len(PROMPTS), rows):
        batch = sorted(PROMPTS, key=lambda p: -len(lm.tok_encode(p)))[start : start + rows]
        ids, mask = lm.tok_batch_encode(batch)
        whole = lm.model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=24, do_sample=False, pad_token_id=2, eos_token_id=2
        )
        for prompt, row in zip(batch, whole.tolist(), strict=True):
            new = row[ids.shape[1] :]
            assert ours[prompt, 0] == (new[: new.index(2) + 1] if 2 in new else new)


def test_a_near_tie_is_decided_by_the_row_alone(lm):
    """A model whose logits move with the size of its batch, as rounding makes them, on two tokens that nearly tie."""

    class Moody(torch.nn.Module):
        config = lm.model.config
        device = lm.model.device

        def forward(self, input_ids, cache=None, attention_mask=None, use_cache=None):
            rows, length = input_ids.shape
            out = torch.zeros(rows, length, 100)
            out[..., 10] = 5.0
            out[..., 11] = 5.0 + (2e-4 if rows > 1 else -2e-4)
            if cache is not None:
                cache.update(torch.zeros(rows, 1, length, 4), torch.zeros(rows, 1, length, 4), 0)
            return type("Output", (), {"logits": out})

    grown: list[Row] = []
    cured = texts(lm, model=Moody(), rows=6, temperature=0.0, grown=grown)
    assert cured == texts(lm, model=Moody(), rows=1, temperature=0.0)
    assert (sum(len(row.new) for row in grown), sum(row.near_ties for row in grown)) == (72, 72)
    # the prompts' lengths differ, so that no prefill was a row alone
    assert sum(row.flipped for row in grown) == 72
    assert max(row.moved for row in grown) == pytest.approx(4e-4, rel=1e-2)
    assert texts(lm, model=Moody(), rows=6, temperature=0.0, tolerance=0.0) != cured


@pytest.mark.parametrize(
    "warpers",
    [{"top_k": 2}, {"min_p": 0.5}, {"top_p": 0.8}, {"epsilon_cutoff": 0.2}, {"eta_cutoff": 0.2}, {"typical_p": 0.8}],
)
def test_a_token_at_the_edge_of_what_a_warper_cuts_is_decided_by_the_row_alone(lm, warpers):
    """Three likely tokens, the second and third of which nearly tie for the last place that is kept."""

    class Edgy(torch.nn.Module):
        config = lm.model.config
        device = lm.model.device
        dtype = torch.float32

        def forward(self, input_ids, cache=None, attention_mask=None, use_cache=None):
            rows, length = input_ids.shape
            out = torch.full((rows, length, 100), -20.0)
            moved = 2e-5 if rows > 1 else -2e-5
            out[..., 10], out[..., 11], out[..., 12] = 5.0, 4.307 - moved, 4.307 + moved
            if cache is not None:
                cache.update(torch.zeros(rows, 1, length, 4), torch.zeros(rows, 1, length, 4), 0)
            return type("Output", (), {"logits": out})

    given = {"samples": 8, "temperature": 1.0, "warpers": warpers, "max_gen_toks": 20}
    grown: list[Row] = []
    cured = texts(lm, PROMPTS[:2], model=Edgy(), rows=16, grown=grown, **given)
    alone = texts(lm, PROMPTS[:2], model=Edgy(), rows=1, **given)
    assert cured == alone
    assert len({token for new in cured.values() for token in new}) > 1
    if "top_k" in warpers:  # here the batch would keep another token than the row alone
        flipped, near_ties = (sum(getattr(row, name) for row in grown) for name in ("flipped", "near_ties"))
        assert 0 < flipped <= near_ties < sum(len(row.new) for row in grown)
        assert {token for new in cured.values() for token in new} == {10, 11}


def test_draws_with_a_warper_follow_what_it_keeps(lm):
    logits = torch.tensor([2.0, 1.5, 1.0, 0.0, -1.0])

    class Fixed(torch.nn.Module):
        config = lm.model.config
        device = lm.model.device
        dtype = torch.float32

        def forward(self, input_ids, cache=None, attention_mask=None, use_cache=None):
            rows, length = input_ids.shape
            if cache is not None:
                cache.update(torch.zeros(rows, 1, length, 4), torch.zeros(rows, 1, length, 4), 0)
            return type("Output", (), {"logits": logits.expand(rows, length, 5)})

    drawn = texts(
        lm,
        PROMPTS,
        model=Fixed(),
        samples=20,
        rows=40,
        temperature=1.0,
        max_gen_toks=25,
        warpers={"top_k": 3},
        end_tokens=(),
    )
    counts = np.bincount([token for new in drawn.values() for token in new], minlength=5)
    expected = logits[:3].double().softmax(0).numpy() * counts.sum()
    assert counts[3:].sum() == 0
    assert stats.chisquare(counts[:3], expected).pvalue > 0.01


def test_samples_share_one_prefill_and_finished_rows_leave(lm, monkeypatch):
    shapes: list[tuple[int, int]] = []
    original = type(lm.model).forward

    def forward(self, input_ids=None, **kwargs):
        shapes.append(tuple(input_ids.shape))
        return original(self, input_ids=input_ids, **kwargs)

    known = Forward(lm.model, 2)._known
    monkeypatch.setattr(type(lm.model), "forward", forward)
    monkeypatch.setattr(
        "evalsweep.engine.models.forward.inspect.signature", lambda _: type("S", (), {"parameters": known})
    )
    found = texts(lm, PROMPTS[:2], samples=4, rows=8, stop=("\n",), tolerance=0.0)
    prefills = [shape for shape in shapes if shape[1] > 1]
    assert prefills == [(2, max(len(lm.tok_encode(p)) for p in PROMPTS[:2]))]
    steps = [rows for rows, length in shapes if length == 1]
    assert steps == sorted(steps, reverse=True)
    assert sum(steps) == sum(len(new) - 1 for new in found.values()), "no row is computed after its end"
    shapes.clear()
    texts(lm, PROMPTS[:1], samples=6, rows=4, tolerance=0.0)
    assert [shape[0] for shape in shapes if shape[1] > 1] == [1], "more samples than rows share it too"
    assert max(rows for rows, _ in shapes) == 4


def test_rows_say_how_they_ended(lm):
    ends: dict[str, str] = {}
    found = texts(lm, temperature=0.0, stop=("\n",), ends=ends, max_gen_toks=6)
    assert ends[PROMPTS[0]] == STOPPED
    assert ends["Once upon a time there was a"] == CAPPED
    end = found["Once upon a time there was a", 0][3]
    again = texts(lm, temperature=0.0, ends=ends, max_gen_toks=6, end_tokens={end})
    assert ends["Once upon a time there was a"] == ENDED
    assert again["Once upon a time there was a", 0][-1] == end


def test_a_stop_string_over_several_tokens_is_found(lm):
    ends: dict[str, str] = {}
    whole = texts(lm, PROMPTS[1:2], temperature=0.0, max_gen_toks=12)[PROMPTS[1], 0]
    text = lm.tok_decode(whole)
    stop = text[len(lm.tok_decode(whole[:3])) + 1 : len(lm.tok_decode(whole[:6])) - 1]
    cut = texts(lm, PROMPTS[1:2], temperature=0.0, stop=(stop,), ends=ends)[PROMPTS[1], 0]
    assert ends[PROMPTS[1]] == STOPPED
    assert stop in lm.tok_decode(cut) and stop not in lm.tok_decode(cut[:-1])


def test_out_of_memory_halves_the_batch_and_loses_nothing(lm):
    class Small(torch.nn.Module):
        config = lm.model.config
        device = lm.model.device

        def forward(self, input_ids, cache=None, **kwargs):
            if len(input_ids) > 2:
                raise torch.OutOfMemoryError("no room")
            return lm.model(input_ids=input_ids, cache=cache, **kwargs)

    assert texts(lm, rows=12, model=Small(), samples=2) == texts(lm, samples=2)
    generator = Generator(Forward(Small(), 2), lm.text.marked)
    given = settings()
    wanted = [Prompted(request(p), tuple(lm.tok_encode(p)), given) for p in PROMPTS]
    generator.generate(wanted, 12, lambda _: None)
    assert generator.smallest_batch in (1, 2, 3)

    class Full(Small):
        def forward(self, input_ids, cache=None, **kwargs):
            raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        texts(lm, rows=4, model=Full())


@pytest.mark.parametrize("warper", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"epsilon_cutoff": 0.99}])
def test_a_warper_that_leaves_one_token_makes_sampling_greedy(lm, warper):
    assert texts(lm, temperature=1.5, warpers=warper) == texts(lm, temperature=0.0)


def test_penalties_count_a_rows_own_tokens_and_not_its_padding(lm):
    for warpers in ({"repetition_penalty": 1.8}, {"no_repeat_ngram_size": 1}):
        penalised = texts(lm, rows=6, temperature=0.0, warpers=warpers)
        assert penalised == texts(lm, rows=1, temperature=0.0, warpers=warpers)
        assert penalised != texts(lm, rows=1, temperature=0.0)
    for new in penalised.values():
        assert len(set(new)) == len(new)


def test_no_top_k_is_applied_unasked(lm):
    """transformers' generate would keep the 50 likeliest tokens alone."""
    sampled = texts(lm, samples=4, rows=8, temperature=3.0, max_gen_toks=4)
    ranks = []
    with torch.inference_mode():
        for (prompt, _), new in sampled.items():
            logits = lm.model(torch.tensor([[*lm.tok_encode(prompt), *new]])).logits[0]
            for i, token in enumerate(new):
                at = logits[len(lm.tok_encode(prompt)) - 1 + i]
                ranks.append(int((at > at[token]).sum()))
    assert sum(rank >= 50 for rank in ranks) > len(ranks) / 2


def test_rows_of_other_seeds_and_settings_share_a_batch_and_one_prefill(lm, monkeypatch):
    kinds = [
        settings(temperature=0.0),
        settings(temperature=0.8),
        settings(temperature=1.5, max_gen_toks=5),
        settings(temperature=0.8, warpers={"top_k": 3}),
        settings(temperature=0.0, warpers={"repetition_penalty": 1.3}),
    ]

    def grown(asked, rows):
        found = {}
        forward = Forward(lm.model, 2)
        generator = Generator(forward, lm.text.marked)
        prefills = []
        original = forward.read

        def read(rows, tokens, keep=1):
            if rows is None:
                prefills.append(len(tokens))
            return original(rows, tokens, keep)

        monkeypatch.setattr(forward, "read", read)
        generator.generate(asked, rows, lambda row: found.__setitem__(id(row.of), row.new))
        return [found[id(one)] for one in asked], prefills

    asked = [
        Prompted(request(prompt, sample, seed), tuple(lm.tok_encode(prompt)), kind)
        for prompt in PROMPTS[:2]
        for kind in kinds
        for seed, sample in ((1, 0), (1, 1), (9, 0))
    ]
    together, prefills = grown(asked, 64)
    assert prefills == [2]
    assert together == [grown([one], 1)[0][0] for one in asked]
    assert max(len(new) for new, one in zip(together, asked, strict=True) if one.settings is kinds[2]) == 5
    assert len({tuple(new) for new in together}) > len(asked) // 2
