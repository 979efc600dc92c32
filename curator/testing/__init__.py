"""The conformance kit: prove that a pack, stage, source or sink keeps the rules that the engine relies on.

    def test_pack(tmp_path):
        check_pack("image", [(Sharpness(), ImageBatch(rows, pixels=[...])), …])    # all of an installed pack

    def test_sharpness():
        check_stage(Sharpness(), ImageBatch(rows, pixels=[...]))                   # one stage

Each check raises an AssertionError that says what is wrong and what to do. It needs no test framework. Give
it a batch of at least three records that differ, so that some of them take each way through the stage.
"""

from curator.testing.io import check_sink, check_source
from curator.testing.pack import check_pack
from curator.testing.stage import CHECKS, check_stage
from curator.testing.whole import run_stage

__all__ = ["CHECKS", "check_pack", "check_sink", "check_source", "check_stage", "run_stage"]
