"""The conformance kit over whole deduplications, where many records are alike."""

import pytest
from curator_dedup import DedupExact, DedupNear, DedupSubstring

from curator import TextBatch
from curator.testing import check_stage, run_stage
from packs.dedup.tests.corpus import corpus, table

ROWS = corpus(seed=3, families=6, alone=5, words=30)
BATCH = TextBatch(table(ROWS))

STAGES = [DedupNear(), DedupExact(mode="cluster", keep="longest"), DedupSubstring(tokens=5)]


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: f"{s.name}-{STAGES.index(s)}")
def test_the_stage_keeps_the_rules(stage):
    check_stage(stage, BATCH)


def test_run_stage_runs_all_parts():
    got = run_stage(DedupNear(), BATCH)
    assert len(set(got["out"].column("family"))) == len(got["out"]) == 11
    assert set(got["duplicate"].column("duplicate_of")) <= set(got["out"].column("id"))
