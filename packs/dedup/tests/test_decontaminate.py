"""Records in which the texts of a benchmark stand are found, named and dropped."""

import gzip
import json
import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import Decontaminate
from curator_dedup.decontaminate.decontaminate import Index
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from curator import read, write
from curator.api.errors import InputError, RecipeError
from curator.api.stage import Context
from curator.api.tasks import TextBatch
from curator.testing import run_stage

QUESTION = ("Natalia sold clips to forty eight of her friends in April, and then she sold half as many clips in May. "
            "How many clips did Natalia sell altogether in April and May?")
SHORT = "Which planet is closest to the sun?"
OTHER = " ".join(f"word{i}" for i in range(60))


def batch(*texts):
    return TextBatch(pa.table({"id": [f"r{i}" for i in range(len(texts))], "source": ["s"] * len(texts),
                               "text": pa.array(texts, pa.string())}))


def jsonl(path, *records):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    return str(path)


@pytest.fixture
def bench(tmp_path):
    jsonl(tmp_path / "bench" / "gsm8k.jsonl", {"question": QUESTION, "answer": "Seventy two", "level": 1})
    jsonl(tmp_path / "bench" / "trivia.jsonl", {"question": SHORT, "answer": "Mercury", "level": 2})
    return str(tmp_path / "bench")


def answers(stage, *texts):
    """For each dropped record, by id: benchmark, match, n-grams, share."""
    dropped = run_stage(stage, batch(*texts)).get("dropped")
    if dropped is None:
        return {}
    names = ("contaminated_by", "contaminated_match", "contaminated_ngrams", "contaminated_share")
    assert dropped.column("reason") == [f"contaminated: {name}" for name in dropped.column("contaminated_by")]
    return dict(zip(dropped.column("id"), zip(*(dropped.column(name) for name in names), strict=True), strict=True))


def test_a_record_that_shares_thirteen_words_in_a_row_is_dropped(bench):
    words = QUESTION.split()
    got = answers(Decontaminate(references=bench), QUESTION, f"{OTHER} {' '.join(words[:13])} {OTHER}",
                  f"{OTHER} {' '.join(words[:12])} x", OTHER, "", None)
    assert got.keys() == {"r0", "r1"}
    by, match, count, share = got["r1"]
    assert (by, match, count) == ("gsm8k", "natalia sold clips to forty eight of her friends in april and then", 1)
    assert share == pytest.approx(13 / 133)
    assert got["r0"][2:] == (len(words) - 12, 1.0)


def test_case_marks_and_white_space_do_not_hide_a_match(bench):
    hidden = QUESTION.upper().replace(" ", " \n").replace(",", " –").replace("clips", "«clips»")
    assert answers(Decontaminate(references=bench), hidden)["r0"][0] == "gsm8k"


def test_a_short_reference_matches_whole_and_a_very_short_one_never(bench):
    got = answers(Decontaminate(references=bench), f"{OTHER} which planet is CLOSEST to the sun",
                  "Which planet is closest to the moon?", "The answer is Mercury", f"Seventy two. {OTHER}")
    assert got == {"r0": ("trivia", "which planet is closest to the sun", 1, pytest.approx(7 / 67))}
    assert not answers(Decontaminate(references=bench, min_words=8), f"{OTHER} {SHORT}")


def test_the_end_of_one_record_and_the_start_of_the_next_are_no_match(bench):
    words = QUESTION.split()
    assert not answers(Decontaminate(references=bench), " ".join(words[:8]), " ".join(words[8:16]))
    assert not answers(Decontaminate(references=bench), "Which planet is closest", "to the sun?")


def test_how_much_is_enough_is_a_parameter(bench):
    text = f"{OTHER} {' '.join(QUESTION.split()[:15])}"  # three n-grams, 15 of 75 words
    for how, dropped in (({"min_matches": 3}, True), ({"min_matches": 4}, False),
                         ({"min_share": 0.19}, True), ({"min_share": 0.21}, False)):
        assert bool(answers(Decontaminate(references=bench, **how), text)) is dropped


def test_a_record_without_a_match_stays_whatever_share_is_enough(bench):
    assert not answers(Decontaminate(references=bench, min_share=0.0), OTHER)


def test_marking_drops_none_and_tells_of_all(bench):
    got = run_stage(Decontaminate(references=bench, action="mark"), batch(QUESTION, OTHER, SHORT))
    assert got.keys() == {"out"}
    assert got["out"].column("contaminated_by") == ["gsm8k", None, "trivia"]
    assert got["out"].column("contaminated_ngrams") == [len(QUESTION.split()) - 12, 0, 1]
    assert got["out"].column("contaminated_match")[1] is None


def test_references_are_of_any_format_and_columns_are_chosen(tmp_path):
    table = pa.table({"prompt": [OTHER], "choices": [[QUESTION, SHORT]], "n": [3]})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text(f'q,n\n"{QUESTION}",1\n')
    with gzip.open(tmp_path / "c.txt.gz", "wt") as file:
        file.write(f"{SHORT}\n\n{OTHER}\n")
    assert answers(Decontaminate(references=str(tmp_path / "a.parquet")), QUESTION, OTHER).keys() == {"r1"}
    chosen = Decontaminate(references=str(tmp_path / "a.parquet"), columns=["choices"])
    assert answers(chosen, QUESTION, OTHER, SHORT).keys() == {"r0", "r2"}
    got = answers(Decontaminate(references=[str(tmp_path / "*.csv"), str(tmp_path / "c.txt.gz")]), QUESTION, SHORT, OTHER)
    assert [got[f"r{i}"][0] for i in range(3)] == ["b", "c", "c"]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    jsonl(tmp_path / "gsm8k" / "test.jsonl", {"q": QUESTION})
    jsonl(tmp_path / "trivia" / "test.jsonl", {"q": SHORT})
    got = answers(Decontaminate(references=f"{tmp_path}/*/test.jsonl"), QUESTION, SHORT)
    assert [got["r0"][0], got["r1"][0]] == ["gsm8k/test", "trivia/test"]


def test_a_mistake_in_the_references_is_told_before_anything_runs(bench, tmp_path):
    with pytest.raises(InputError, match=r"nothing\.jsonl does not exist"):
        Decontaminate(references=f"{bench}/nothing.jsonl").check({})
    with pytest.raises(InputError, match=r"no column 'quesion' \(did you mean 'question'\?\) in .*gsm8k\.jsonl"):
        Decontaminate(references=bench, columns=["quesion"]).check({})
    with pytest.raises(InputError, match="'options'"):
        Decontaminate(references=bench, columns=["question", "options"]).check({})
    with pytest.raises(InputError, match=r"column 'level' of the reference .* is int64"):
        Decontaminate(references=bench, columns=["question", "level"]).check({})
    (tmp_path / "x.docx").write_bytes(b"PK")
    with pytest.raises(InputError, match="JSON Lines, Parquet, CSV or"):
        Decontaminate(references=str(tmp_path / "x.docx")).check({})
    jsonl(tmp_path / "bench2" / "test.jsonl", {"q": "too short"})
    with pytest.raises(InputError, match="no text of 5 words"):
        run_stage(Decontaminate(references=str(tmp_path / "bench2")), batch("a"))
    with open(f"{bench}/trivia.jsonl", "a") as file:
        file.write("{broken\n")
    with pytest.raises(InputError, match=r"trivia\.jsonl has a record that cannot be read"):
        run_stage(Decontaminate(references=bench), batch("a"))


@pytest.mark.parametrize("wrong", [{"ngram": 0}, {"min_words": 0}, {"min_matches": 0}, {"min_share": 1.5}, {"references": []},
                                   {"action": "keep"}, {"columns": []}])
def test_nonsense_is_an_error(wrong):
    with pytest.raises(RecipeError, match="decontaminate"):
        Decontaminate(**{"references": "x.jsonl", **wrong})


def test_an_edited_benchmark_is_another_fingerprint(bench):
    before = Decontaminate(references=bench).fingerprint()
    assert Decontaminate(references=[bench]).fingerprint() == before
    jsonl(f"{bench}/trivia.jsonl", {"question": "What is the name of the nearest star?", "answer": "x", "level": 2})
    assert Decontaminate(references=bench).fingerprint() != before


@pytest.fixture
def remote(monkeypatch):
    """A benchmark on a remote filesystem; `remote()`: how often its folder was listed since it was asked last."""
    asked = []
    plain = MemoryFileSystem.ls
    monkeypatch.setattr(MemoryFileSystem, "ls", lambda self, path, *more, **named: [
        asked.append(path), plain(self, path, *more, **named)][1])
    put("gsm8k", QUESTION)
    yield lambda: [asked.count("/listed/bench"), asked.clear()][0]
    MemoryFileSystem().rm("/listed", recursive=True)


def put(name, question):
    MemoryFileSystem().pipe_file(f"/listed/bench/{name}.jsonl", json.dumps({"question": question}).encode())


def test_remote_references_are_listed_once_a_plan_and_never_by_workers(remote, tmp_path):
    jsonl(tmp_path / "in.jsonl", {"text": QUESTION})
    stage = Decontaminate(references="memory://listed/bench/*.jsonl")

    def plan(stage):
        (read(str(tmp_path / "in.jsonl")) >> stage >> write(str(tmp_path / "out"))).plan()
        return remote(), len(stage.reasons()), remote()

    assert plan(stage) == (1, 1, 0)
    put("more", "What is the name of the nearest star, and how far is it?")
    assert plan(stage) == (1, 2, 0)
    there = pickle.loads(pickle.dumps(stage.with_(name="other")))
    there.setup(Context())
    assert (there._names, remote()) == (["gsm8k", "more"], 0)


def test_what_was_listed_is_no_part_of_a_stage_and_its_fingerprint_is_that_of_now(remote):
    stage, other = (Decontaminate(references="memory://listed/bench/*.jsonl") for _ in range(2))
    first = stage.fingerprint()
    assert stage == other
    assert pickle.loads(pickle.dumps(stage)).fingerprint() == stage.with_(name="x").fingerprint() == first
    put("gsm8k", OTHER)
    assert stage.fingerprint() == other.fingerprint() != first


@given(st.lists(st.text("ab ", max_size=40), min_size=1, max_size=4),
       st.lists(st.text("ab ", max_size=60), min_size=1, max_size=4), st.integers(1, 8), st.integers(1, 8))
def test_matches_are_those_that_a_plain_search_finds(references, texts, n, least):
    wanted = {}
    for number, reference in enumerate(references):
        words = reference.split()
        for i in range(max(1, len(words) - n + 1)):
            if len(words[i:i + n]) >= min(least, n):
                wanted.setdefault(tuple(words[i:i + n]), number)
    index = Index(n, least)
    for number, reference in enumerate(references):
        index.add(number, [reference])
    index.build()
    found = index.found(texts) if index.tables else None
    for d, text in enumerate(texts):
        words = text.split()
        hits = [(i, -size, tuple(words[i:i + size])) for size in {len(gram) for gram in wanted}
                for i in range(len(words) - size + 1) if tuple(words[i:i + size]) in wanted]
        if found is None:
            assert not hits
            continue
        assert found.ngrams[d] == len(hits)
        covered = {place for i, size, _ in hits for place in range(i, i - size)}
        assert found.share[d] == pytest.approx(len(covered) / max(1, len(words)))
        first = min(hits, default=None)
        assert found.match[d] == (" ".join(first[2]) if first else None)
        assert found.by[d] == (wanted[first[2]] if first else -1)


def test_a_run_counts_what_it_drops(bench, tmp_path):
    source = jsonl(tmp_path / "in" / "docs.jsonl", {"text": QUESTION}, {"text": OTHER}, {"text": SHORT})
    out = str(tmp_path / "out")
    (read(source) >> Decontaminate(references=bench) >> write(out)).run(workers=0)
    with open(f"{out}/_run/stats.json") as file:
        stats = json.load(file)
    assert stats["records"]["dropped"] == 2
    stage = next(s for s in stats["stages"] if s["name"] == "decontaminate")
    fired = {reason: rows for reason, rows in stage["dropped"].items() if rows}
    assert fired == {"contaminated: gsm8k": 1, "contaminated: trivia": 1}
