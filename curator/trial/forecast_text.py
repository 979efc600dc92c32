"""A forecast on the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from curator.api.format import count, duration, plural, share, size
from curator.trial.forecast import Forecast

NAME, FOLDERS_MAX = 30, 6
BUSY = 1.0  # processes of others for each core, from which on it is said


def in_words(found: Forecast, cpu_hour: float = 0.0, gpu_hour: float = 0.0) -> str:
    """The lines that `curator plan --probe` prints, in 80 columns."""
    lines = _lines(found, cpu_hour, gpu_hour)
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=" " * 8, replace_whitespace=False)
                     for line in lines)


def _lines(found: Forecast, cpu_hour: float, gpu_hour: float) -> Iterator[str]:
    yield (f"A sample of {plural(found.sampled_records, 'record')} from {count(found.sampled_parts)} of "
           f"{plural(found.parts, 'part')} took {duration(found.sample_s)}. So the whole would be, about:")
    yield ""
    yield f"{'':{NAME}}{'records in':>16}{'goes on':>10}{'core time':>14}{'share':>8}"
    for stage in found.stages:
        name = stage["name"] if len(stage["name"]) < NAME else stage["name"][:NAME - 2] + "…"
        yield (f"{name:{NAME}}{count(stage['in']):>16}{share(stage['out'], stage['in']):>10}"
               f"{duration(stage['core_s']):>14}{share(stage['core_s'], found.core_s):>8}")
    yield ""
    low, high = found.between
    gpus = f" and {plural(found.gpus, 'GPU')}" if found.gpus else ""
    yield (f"time    {duration(found.seconds)} on {plural(int(found.cores), 'core')}{gpus}; "
           f"nine times in ten {duration(low)} to {duration(high)}")
    if found.others > BUSY:
        yield (f"        this machine has other work, {1 + found.others:.0f} processes a core: so the bounds "
               "are wide")
    gpu_work = f", {found.gpu_s / 3600:,.2f} GPU hours" if found.gpu_s else ""
    yield f"work    {found.core_s / 3600:,.2f} core hours{gpu_work}"
    if cpu_hour or gpu_hour:
        yield (f"cost    {found.price(cpu_hour, gpu_hour):,.2f}, the machines paid for all the time "
               f"({cpu_hour:g} a core hour, {gpu_hour:g} a GPU hour)")
    if found.memory:
        yield f"memory  {size(found.memory)} at most while the sample ran, of all processes here"
    largest = sorted(found.outputs.items(), key=lambda one: -one[1])
    yield f"disk    {size(sum(found.outputs.values()))}"
    for folder, nbytes in largest[:FOLDERS_MAX]:
        yield f"        {size(nbytes):>10}  {folder}/"
    if len(largest) > FOLDERS_MAX:
        rest = sum(nbytes for _, nbytes in largest[FOLDERS_MAX:])
        yield f"        {size(rest):>10}  {plural(len(largest) - FOLDERS_MAX, 'more folder')}"
    for number, limit in enumerate(found.limits, 1):
        of = f" of phase {number}" if len(found.limits) > 1 else ""
        yield f"limit{of}   {limit}"
