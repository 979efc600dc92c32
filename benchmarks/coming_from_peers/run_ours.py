"""The job of a peer by our recipe, as a user runs it: the command line, and for tables of groups a query over what it wrote."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

KINDS = """COPY (SELECT kind, count(*) AS count, avg(words) AS words FROM '{out}/data/*.parquet' GROUP BY kind)
TO '{out}/kinds/kinds.parquet'"""


def main() -> None:
    told = json.loads(sys.argv[2])
    recipe = Path(__file__).with_name(f"ours_{told['peer']}.yaml")
    command = [sys.executable, "-m", "curator", "run", str(recipe), "--set", f"read.path={told['documents']}", "--out", told["out"]]
    subprocess.run([*command, *(part for value in told["set"] for part in ("--set", value))], check=True)
    if told["peer"] == "ray_data":
        import duckdb

        Path(told["out"], "kinds").mkdir()
        duckdb.sql(KINDS.format(out=told["out"]))
    Path(told["place"], "job.json").write_text(json.dumps({"version": version("curator-core")}), encoding="utf-8")


if __name__ == "__main__":
    main()
