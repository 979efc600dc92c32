"""A job on Ray Data: read JSON Lines, measure, filter, one of equal texts, a table of groups, write Parquet."""

import hashlib

import common
import pandas as pd
import ray
from ray.data.aggregate import Count, Mean


def measure(batch: pd.DataFrame) -> pd.DataFrame:
    batch["text"] = batch["text"].str.strip(" \n")
    batch["words"] = batch["text"].str.split().str.len()
    batch["digest"] = [hashlib.sha256(text.encode()).hexdigest() for text in batch["text"]]
    return batch


def first(group: pd.DataFrame) -> pd.DataFrame:
    return group.sort_values("id").head(1)


def job(documents: str, out: str) -> None:
    kept = (
        ray.data.read_json(documents, lines=True)
        .map_batches(measure, batch_format="pandas")
        .filter(expr="words >= 50")
        .groupby("digest")
        .map_groups(first, batch_format="pandas")
        .drop_columns(["digest"])
        .materialize()
    )
    kept.write_parquet(f"{out}/data")
    kept.groupby("kind").aggregate(Count(), Mean("words")).write_parquet(f"{out}/kinds")


if __name__ == "__main__":
    common.main("ray", job)
