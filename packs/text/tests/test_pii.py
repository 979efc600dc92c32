"""Personal data and secrets: what is found and what only looks like it; nothing else of a text changes."""

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from curator_text import Pii
from curator_text.privacy.finders import FINDERS, find, luhn
from curator_text.privacy.secrets import first_of_each_place
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import load
from curator.api.tasks import TextBatch
from curator.explore.questions import Questions
from curator.results import RunOutput
from curator.testing import check_stage, run_stage

ALL = tuple(FINDERS)
LETTERS = "aZ3kQ9xT1mB7vN5cL2pR8sD4fG6hJ0wE"
KEYS = ["AKIA" + "Q2W3E4R5T6Y7UIOP", "ghp_" + LETTERS + "uiop", "hf_" + "aZkQxTmBvNcLpRsDfGhJwEyUiOqAbCdEfG", "AIza" + LETTERS + "_-x",
        "xoxb-123456789012-" + LETTERS[:24], "sk_live_" + LETTERS[:24], "glpat-" + LETTERS[:20],
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + LETTERS,
        "-----BEGIN RSA PRIVATE KEY-----\n" + (LETTERS + "+/\n") * 3 + "-----END RSA PRIVATE KEY-----"]
FOUND = [("email", "a.b+c@d-e.co.uk"), ("email", "joe@x.io"), ("email", "é@é.fr"), ("email", "A.B@C.DE"), ("email", "почта@пример.рф"),
         ("email", "joe (at) x.io"), ("email", "a.b[at]c.de"), ("iban", "de89370400440532013000"),
         ("ip", "8.8.8.8"), ("ip", "2001:4860:4860::8888"), ("ip", "93.184.216.34"), ("ip", "1.1.1.1"),
         ("phone", "555-223-4567"), ("phone", "(212) 555-0142"), ("phone", "+49 30 901820"),
         ("phone", "+1 650.253.0000"), ("phone", "+442079460958"), ("card", "4111111111111111"), ("card", "3782 822463 10005"),
         ("card", "5555-5555-5555-4444"), ("card", "6011111111111117"), ("iban", "GB82 WEST 1234 5698 7654 32"),
         ("iban", "DE89370400440532013000"), ("iban", "FR14 2004 1010 0505 0001 3M02 606"), ("ssn", "219-09-9999"),
         *(("key", k) for k in KEYS)]
NOT_FOUND = ["foo@bar", "git@github.com:user/repo", "@scope/pkg@1.2.3", "@user@mastodon.social", "x@y.z1",
             "icon@2x.png", "version 1.2.3.4", "Chrome/120.0.0.1", "10.0.0.1", "127.0.0.1", "192.168.1.20",
             "300.1.1.1", "2021.12.11.10", "1.2.3.4.5", "see 6.3.1.2", "6.1.2.1. Updates", "8.2.2.2. x",
             "order 1234567890", "1234567812345670", "0000000000000000", "4111111111111112",
             "GB82 WEST 1234 5698 7654 33", "2020-2021", "12:30:45", "fe80::1", "std::vector",
             "AKIAXXXXXXXXXXXXXXXX", "000-12-3456", "isbn 978-3-16-148410-0", "3.14159265358979",
             "π ≈ 3.141 592 653 589 793", "price 1 299 999", "f(at) x.y", "de89370400440532013001", "look (at) this",
             "2021-12-31 23:59:59", "hf_x", "sk-" + "a" * 48]


@pytest.mark.parametrize(("kind", "value"), FOUND, ids=[f"{kind} {n}" for n, (kind, _) in enumerate(FOUND)])
@pytest.mark.parametrize("around", ["{}", "mail {} now", "mailto:{}?subject=x", "({})", "see {}.", "“{}”,\n"], ids=range(6))
def test_what_is_found_whatever_stands_around_it(kind, value, around):
    if around.startswith("mailto") and kind != "email":
        around = "is: {};"
    text = around.format(value)
    assert [(text[a:b], k) for a, b, k in find(text, ALL)] == [(value, kind)]


@pytest.mark.parametrize("text", NOT_FOUND, ids=range(len(NOT_FOUND)))
def test_what_only_looks_like_it(text):
    assert find(text, ALL) == []
    assert find(f"so {text}, here", ALL) == []


def test_of_what_overlaps_the_first_kind_counts():
    found = first_of_each_place([("a", [(4, 6), (9, 12)]), ("b", [(0, 4), (5, 9), (6, 9), (11, 20)]), ("c", [(0, 99), (12, 13)])])
    assert found == [(0, 4, "b"), (4, 6, "a"), (6, 9, "b"), (9, 12, "a"), (12, 13, "c")]


def test_small_numbers_are_an_address_where_they_are_called_one():
    assert find("6.3.2.1", ("ip",)) == []
    assert [text for text in ("ping 6.3.2.1", "the server at 6.3.2.1", "6.3.2.1:8080", "6.3.2.0/24") if not find(text, ("ip",))] == []


def test_a_card_number_is_rare_among_random_ones():
    rng = random.Random(0)
    numbers = ["".join(rng.choices("0123456789", k=16)) for _ in range(4000)]
    passing = sum(map(luhn, numbers)) / len(numbers)
    assert 0.085 < passing < 0.115
    assert sum(bool(find(number, ("card",))) for number in numbers) / len(numbers) < 0.04


PIECES = st.lists(st.one_of(st.sampled_from([value for _, value in FOUND]), st.sampled_from(NOT_FOUND), st.text(max_size=8)), max_size=8)


@given(PIECES, st.sampled_from(["mark", "replace", "mask"]))
@settings(max_examples=60)
def test_nothing_else_changes_and_what_was_put_in_is_not_found_again(pieces, action):
    text = " | ".join(pieces)
    spans = find(text, ALL)
    assert all(b <= c for (_, b, _), (c, _, _) in pairwise(spans))
    stage = Pii(action=action, kinds=list(ALL))
    changed = run_stage(stage, batch([text]))["out"].column("text")[0]
    rest = [text[b:a] for b, a in zip([0, *(b for _, b, _ in spans)], [*(a for a, _, _ in spans), len(text)], strict=True)]
    at = 0
    for part in rest:
        assert part in changed[at:]
        at = changed.index(part, at) + len(part)
    if action == "mask":
        assert len(changed) == len(text)
        assert len(find(changed, ALL)) <= len(spans)


def batch(texts):
    ids = [f"r{n}" for n in range(len(texts))]
    return TextBatch(pa.table({"id": ids, "source": ["s"] * len(texts), "text": pa.array(texts, pa.string())}))


def test_the_same_address_has_the_same_replacement_everywhere():
    text = "a@b.com, c@d.org, A@B.com; 8.8.8.8, 10.0.0.1"
    one, other = run_stage(Pii(), batch([text, "again a@b.com"]))["out"].column("text")
    first, second, third = one.split(";")[0].split(", ")
    assert first == third == other.removeprefix("again ")
    assert all(address.rsplit(".", 1)[0].endswith("example") for address in (first, second, third))
    assert one.endswith(", 10.0.0.1")


@pytest.mark.parametrize("step", ["text.pii: {marks: {email: MAIL}}", "text.code_secrets: {marks: {jwt: TOKEN}}"])
def test_the_page_over_a_run_knows_its_rules(step, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "text": "write to a.b@c.de"}\n')
    load(f"read: {{jsonl: {{path: {tmp_path}/in.jsonl}}}}\nsteps: [{step}, drop: {{long: LENGTH(text) > 99}}]\nwrite: jsonl\n"
         f"out: {tmp_path}/out").run(workers=0)
    questions = Questions(RunOutput.open(str(tmp_path / "out")))
    assert [rule["reason"] for rule in questions.answer("run", {})["rules"]] == ["long"]
    questions.close()


def test_counts_are_columns_and_marks_can_be_chosen():
    stage = Pii(action="mark", kinds=["email", "ip"], marks={"email": "|||EMAIL_ADDRESS|||"})
    rows = run_stage(stage, batch(["x@y.com and 1.1.1.1 and z@y.com", None, "none"]))["out"]
    assert rows.column("text") == ["|||EMAIL_ADDRESS||| and <IP> and |||EMAIL_ADDRESS|||", None, "none"]
    assert (rows.column("pii_count"), rows.column("pii_email"), rows.column("pii_ip")) == ([3, None, 0], [2, None, 0], [1, None, 0])
    untouched = run_stage(Pii(action="count"), batch(["x@y.com"]))["out"]
    assert (untouched.column("text"), untouched.column("pii_count")) == (["x@y.com"], [1])


@pytest.mark.parametrize(("options", "told"), [({"kinds": ["mail"]}, "no kind 'mail'"), ({"kinds": []}, "nothing to look for"),
                                               ({"action": "drop"}, "action must be")])
def test_nonsense_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Pii(**options)


def test_it_keeps_the_rules_of_stages():
    check_stage(Pii(), batch([*(value for _, value in FOUND[:8]), None, ""]))
