"""Language models that compute in the workers: a tiny random one, asked as a server would be."""

import pyarrow as pa
import pytest
from curator_text import Llm

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.api.tasks import TextBatch
from curator.testing import check_stage, run_stage
from packs.text.tests.tiny_text_models import save_chat_model

pytest.importorskip("transformers")
TEXTS = ["a", "the sea is wide and deep", None, "ships", "x" * 90, "of salt and of sand"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_chat_model(tmp_path_factory.mktemp("chat"))


def batch(texts=TEXTS):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(ids), "text": pa.array(texts, pa.string())}))


def stage(folder, **parameters):
    return Llm(model=folder, **({"prompt": "say {text}", "max_tokens": 12} | parameters))


def said(folder, texts=TEXTS, **parameters):
    return run_stage(stage(folder, **parameters), batch(texts))["out"].column("answer")


def test_the_likeliest_answer_is_that_of_the_bare_model(folder):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    out = run_stage(stage(folder, system="be short"), batch())["out"]
    for text, answer, tokens_in, tokens, reason in zip(TEXTS, *(out.column(f"answer{name}") for name in (
            "", "_tokens_in", "_tokens", "_finish_reason")), strict=True):
        if text is None:
            assert (answer, tokens_in, tokens, reason) == (None,) * 4
            continue
        asked = tokenizer.apply_chat_template([{"role": "system", "content": "be short"}, {"role": "user", "content": f"say {text}"}],
                                              add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.inference_mode():
            whole = model.generate(**asked, max_new_tokens=12, do_sample=False)[0, asked["input_ids"].shape[1]:]
        assert answer == tokenizer.decode(whole, skip_special_tokens=True).strip()
        assert (tokens_in, tokens) == (asked["input_ids"].shape[1], len(whole))
        assert reason == ("stop" if whole[-1] == 1 else "length")


def test_what_is_drawn_follows_from_seed_and_question_not_from_the_batch(folder):
    drawn = said(folder, temperature=2.0)
    assert drawn == [said(folder, [text], temperature=2.0)[0] for text in TEXTS]
    assert drawn != said(folder, temperature=2.0, seed=1)
    assert drawn != said(folder)
    assert said(folder, temperature=2.0, options={"top_k": 1}) == said(folder)
    assert said(folder, temperature=2.0, options={"top_p": 1e-6}) == said(folder)
    assert said(folder, temperature=2.0, options={"min_p": 1.0}) == said(folder)


def test_tokens_are_drawn_as_often_as_they_are_likely():
    import torch
    from curator_text.llm.speaker import Draw

    questions = [{"messages": n, "seed": 0, "max_tokens": 1, "temperature": 0.5, "top_p": 0.9} for n in range(4000)]
    scores = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1])).repeat(4000, 1)
    counts = torch.bincount(Draw(questions, 3)(torch.zeros(4000, 3), scores).argmax(dim=1), minlength=4) / 4000
    wanted = torch.tensor([16, 9, 4, 0]) / 29  # the shares squared; the last one lies beyond 0.9
    assert torch.allclose(counts, wanted, atol=0.03)


def test_several_samples_differ_and_answers_are_kept(folder, tmp_path):
    asked = {"samples": 3, "temperature": 2.0, "cache": str(tmp_path / "answers")}
    first = run_stage(stage(folder, **asked), batch(["a sea"]))["out"]
    assert len(set(first.column("answer"))) == 3
    again = stage(folder, **asked)
    again.setup(Context())
    again._speaker = None  # nobody is asked
    assert again.process(batch(["a sea"]))["out"].column("answer") == first.column("answer")
    again.close()


def test_a_question_that_is_too_long_fails_alone(folder):
    ports = run_stage(stage(folder), batch(["short", "x" * 300]))
    assert (ports["out"].column("id"), ports["failed"].column("id")) == (["r0"], ["r1"])
    assert "more than the 256 that the model takes" in ports["failed"].column("error")[0]


def test_an_answer_that_is_no_object_is_asked_for_again_and_then_fails(folder):
    asked = stage(folder, fields={"n": "integer"}, attempts=3)
    asked.setup(Context())
    seen, answers = [], iter(["no", '{"n": "many"}', '{"n": 4}'])

    def answered(questions):
        from curator.models.chat import Reply

        seen.extend(questions)
        return [(0, Reply(next(answers), "stop", 1, 2))]

    asked._speaker.answers = answered
    outputs = asked.process(batch(["a"]))
    assert outputs["out"].column("n") == [4]
    assert [(question["seed"], question["temperature"]) for question in seen] == [(0, 0.0), (1000, 0.5), (2000, 0.5)]
    assert (outputs.counts["unfit"], outputs.counts["tokens_in"], outputs.counts["tokens_out"]) == (2, 6, 3)
    failed = run_stage(stage(folder, fields={"n": "integer"}, attempts=2), batch(["a"]))["failed"]
    assert "is no JSON" in failed.column("error")[0]


def test_the_model_is_told_the_schema_and_a_template_without_a_system_message_gets_it_before_the_question(tmp_path):
    from curator_text.llm.speaker import Speaker

    template = ("{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
                "{% for m in messages %}{{ m['content'] }}{% endfor %}")
    speaker = Speaker(save_chat_model(tmp_path, template=template), Context())
    texts = []
    speaker.tokenizer = Told(speaker.tokenizer, texts)
    question = Llm(model="m", prompt="{text}", system="be kind", fields={"n": "integer"})._question({"text": "hello"}, 0)
    speaker._ids(question)
    assert texts[0].startswith("be kind\n\nhello\n\nAnswer with nothing but a JSON object")
    assert '"n": {"type": "integer"}' in texts[0]


class Told:
    def __init__(self, tokenizer, texts):
        self.apply_chat_template, self._tokenizer, self._texts = tokenizer.apply_chat_template, tokenizer, texts

    def __call__(self, text, **options):
        self._texts.append(text)
        return self._tokenizer(text, **options)


def test_a_model_that_nobody_knows_how_to_ask(tmp_path):
    with pytest.raises(CuratorError, match="has no chat template"):
        run_stage(stage(save_chat_model(tmp_path, template=None)), batch(["a"]))


@pytest.mark.parametrize(("options", "told"), [
    ({"requests_per_minute": 5}, "requests_per_minute is for a server"), ({"options": {"stop": ["x"]}}, "does not know stop"),
    ({"attempts": 0}, "attempts must be 1"), ({"options": {"max_tokens": None}}, "wants max_tokens")],
    ids=["limit", "option", "attempts", "max_tokens"])
def test_nonsense_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Llm(model="m", prompt="{text}", **options)


def test_it_keeps_the_rules_of_stages(folder):
    check_stage(stage(folder, temperature=1.0), batch(), skip={"gpu"})  # words of a random model turn on the last digit
