"""The command line: a shell over `run`, `plan` and `preview`, without logic of its own."""

from __future__ import annotations

import gc
import sys
from typing import Any

import click

from curator.api.errors import CuratorError, FirstError
from curator.cli.compare import compare
from curator.cli.ends import asked, end, quiet_option, run_and_show, workers_option, wrapped
from curator.cli.explore import explore
from curator.cli.failures import failures, replay
from curator.cli.lists import COMMANDS
from curator.cli.live import END_S, LiveCommand, served
from curator.cli.live import option as dashboard_option
from curator.cli.loading import (
    inputs_argument,
    load_recipe,
    recipe_options,
    run_argument,
    told_what_reads,
    what_reads,
)
from curator.cli.new import new
from curator.cli.profile import call, profile
from curator.cli.trace import trace
from curator.cli.watch import watch
from curator.cli.what_if import recut, what_if
from curator.registry import packs

RAY_HERE = "local or RAY_ADDRESS"
FEW = 5  # records of a preview


class Commands(click.Group):
    """Lists the commands in the order in which a new user needs them, and prints errors of ours without a
    traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CuratorError as error:
            for message in (str(error), *getattr(error, "__notes__", ())):
                click.echo(f"curator: {message}", err=True)
            ctx.exit(2)


class RunCommand(LiveCommand):
    """An address behind `--ray` is its value, a recipe is not."""

    optional = LiveCommand.optional | {"--ray": (r"auto|local|\S+:\d+", RAY_HERE)}


mode_option = click.option("--mode", type=click.Choice(["stream", "batch"]), default="stream",
                           show_default=True,
                           help="Run all operators at once, or each to its end before the next begins "
                                "(between them, rows are kept on disk).")


def show_versions(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    """A line for each installed distribution, the core first. Imports no pack, so a broken one is named
    too."""
    if wanted and not ctx.resilient_parsing:
        for line in dict.fromkeys(f"{pack.distribution} {pack.version} ({pack.place})"
                                  for pack in packs.installed()):
            click.echo(line)
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=show_versions,
              help="Show the version of the core and of every installed pack, and where they lie.")
def main() -> None:
    """Curate text, images, video and audio into training data: nothing lost, every drop explained."""


@main.command(cls=RunCommand, short_help="Run a recipe, or continue it where it was interrupted.")
@recipe_options
@inputs_argument
@workers_option
@click.option("--ray", metavar="[ADDRESS]", is_flag=False, flag_value=RAY_HERE,
              help="Work on a Ray cluster: at ADDRESS (host:port), else that of RAY_ADDRESS, else its own on "
                   "this machine. [default where RAY_ADDRESS is set]")
@click.option("--engine", type=click.Choice(["curator", "ray-data"]), default="curator", show_default=True,
              help="Who runs the stages: our own runtime, or Ray Data on the Ray cluster of --ray.")
@click.option("--prune", is_flag=True,
              help="Remove results of inputs that are no longer there, make again what was written and is no "
                   "longer there, and say what that is.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before an edit of the recipe removes results.")
@click.option("--replace", is_flag=True,
              help="Remove results that are in the way, also those of another recipe.")
@click.option("--metrics-port", metavar="PORT",
              help="Serve metrics to Prometheus: a port, or HOST:PORT to let others in.")
@mode_option
@click.option("--stages", is_flag=True,
              help="Show a line for each stage: rows in and out, rate, queue, workers, busy cores.")
@dashboard_option
@quiet_option
@click.option("--shard", metavar="I/N",
              help="Do part I of N (1/8 to 8/8), beside the others on other machines; the same run without "
                   "it gathers them.")
def run(recipe: str, inputs: tuple[str, ...], settings: tuple[str, ...], out: str | None,
        workers: int | None, ray: str | None, engine: Any, prune: bool, yes: bool, replace: bool, mode: Any,
        metrics_port: str | None, stages: bool, dashboard: int | None, quiet: bool,
        shard: str | None) -> None:
    """Run RECIPE (a file, or a packaged one such as text/web), or continue it where it was interrupted.
    It reads the INPUTs, paths or globs or URLs, instead of what it names itself.

    Ends with 0 when every record was dealt with and no more failed than the recipe's max_failed allows.
    """
    from curator.pipeline.layout import elsewhere

    pipeline = load_recipe(recipe, settings, out, inputs)
    if not quiet and pipeline.settings.out is not None:
        for place in elsewhere(pipeline):
            click.echo(f"writes to {place}, not below {pipeline.settings.out}: so the recipe says", err=True)
    folder = _shown_folder(pipeline, shard)
    with told_what_reads(recipe, inputs, settings), served(folder, dashboard) as board:
        result = run_and_show(pipeline, quiet=quiet, stages=stages, watch=board.feed if board else None,
                              workers=workers, ray=True if ray == RAY_HERE else ray, mode=mode, engine=engine,
                              prune=(lambda lost: click.echo(lost, err=True)) if prune else False,
                              replace=replace or (lambda lost: yes or asked(lost)),
                              metrics_port=metrics_port, shard=shard)
        if board:
            board.end(result.stats, END_S)
        if not result.ok and not result.records["written"] and (said := what_reads(recipe, inputs)):
            click.echo(f"curator: {said}", err=True)
    end(result)


def _shown_folder(pipeline: Any, shard: str | None) -> str:
    """The folder of the run, or of its shard."""
    from curator.io.files.folder import Folder
    from curator.run.folder.shards import Shard

    out = str(pipeline.settings.out)
    return out if shard is None else Shard.of(shard).folder(Folder.open(out)).uri


@main.command(short_help="Show what a recipe would do.")
@recipe_options
@inputs_argument
@mode_option
@click.option("--probe", type=click.IntRange(min=1), metavar="RECORDS",
              help="Run so many records from all over the input, into a folder that is removed, and tell "
                   "what the whole will take.")
@click.option("--nodes", metavar="NODES", help="With --probe: where it is to run, such as "
                                               "'8x(64cpu,8gpu)' [default: here].")
@click.option("--price-cpu-hour", type=float, default=0.0, help="With --probe: what a core costs an hour.")
@click.option("--price-gpu-hour", type=float, default=0.0, help="With --probe: what a GPU costs an hour.")
def plan(recipe: str, inputs: tuple[str, ...], settings: tuple[str, ...], out: str | None, mode: Any,
         probe: int | None, nodes: str | None, price_cpu_hour: float, price_gpu_hour: float) -> None:
    """Show what RECIPE would do: operators, contracts, units and bytes. Nothing is read but listings and
    first lines, and a sample with --probe."""
    if probe is not None:
        from curator.trial.forecast import forecast
        from curator.trial.forecast_text import in_words
        from curator.trial.nodes import parse_nodes

        there = parse_nodes(nodes) if nodes else None
        with told_what_reads(recipe, inputs, settings):
            found = forecast(load_recipe(recipe, settings, out, inputs), probe, there)
        click.echo(in_words(found, price_cpu_hour, price_gpu_hour))
        return
    for name, given in (("--nodes", nodes), ("--price-cpu-hour", price_cpu_hour),
                        ("--price-gpu-hour", price_gpu_hour)):
        if given:
            raise CuratorError(f"{name} is for a forecast: give --probe 500 too")
    from curator.run.folder.shards import planned
    from curator.trial.explain import explain

    with told_what_reads(recipe, inputs, settings):
        told = explain(planned(load_recipe(recipe, settings, out, inputs), mode))
    for line in wrapped(told.splitlines()):
        click.echo(line)


@main.command(short_help="Try a recipe on a few records.")
@recipe_options
@click.argument("inputs", nargs=-1, metavar="[INPUT]... [N]", type=click.Path())
def preview(recipe: str, settings: tuple[str, ...], out: str | None, inputs: tuple[str, ...]) -> None:
    """Try RECIPE on the first N records [default: 5], in this process: what each stage changes, and who drops
    what. Writes nothing. It reads the INPUTs, paths or globs or URLs, instead of what it names itself.

    Ends with 2 when all records failed in some stage.
    """
    from curator.observe.preview import show_preview
    from curator.trial.preview import preview as preview_pipeline

    n = FEW
    if inputs and inputs[-1].isdecimal():
        n = click.IntRange(min=1).convert(int(inputs[-1]), None, None)
        inputs = inputs[:-1]
    with told_what_reads(recipe, inputs, settings):
        stages = preview_pipeline(load_recipe(recipe, settings, out, inputs), n)
    show_preview(stages, records_max=n)
    for stage in stages:
        if stage.all_failed:
            raise CuratorError(f"all records failed in stage {stage.name}\n{stage.error or ''}".rstrip())


@main.command(short_help="Show the funnel of a run, also while it works.")
@run_argument
@click.option("--json", "as_json", is_flag=True, help="The numbers as they stand in stats.json.")
def show(folder: str, as_json: bool) -> None:
    """Show the funnel of a run: as it ended, as it was when it was killed, or how far it is; and its shards
    that were not gathered yet. RUN is its output folder."""
    from curator.io.files.folder import Folder
    from curator.observe.report.funnel import show_funnel
    from curator.results.output import RunOutput
    from curator.results.shards import shard_lines

    out = Folder.open(folder)
    shards = [] if as_json else shard_lines(out)
    for line in shards:
        click.echo(line)
    if shards and not out.sub("_run").exists("stats.json"):
        return
    output = RunOutput.open(folder)
    if as_json:
        click.echo(output.folder.sub("_run").read("stats.json").decode())
        return
    stats = output.stats
    show_funnel(stats)
    for error in stats.get("first_errors", ())[:1] if stats["status"] != "finished" else ():
        for line in wrapped(str(FirstError(**error)).splitlines()):
            click.echo(line)


@click.command(short_help="Print the Grafana dashboard for --metrics-port.")
def grafana() -> None:
    """Print the Grafana dashboard that shows what `run --metrics-port` serves, to be imported there as
    JSON."""
    from importlib.resources import files

    click.echo(files("curator.observe.live").joinpath("grafana.json").read_text(encoding="utf-8"), nl=False)


@click.command(short_help="Print what makes a shell complete names, options and runs.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options, recipes, stages and folders of runs.

    \b
    bash  in ~/.bashrc                  eval "$(curator completion bash)"
    zsh   in ~/.zshrc, after compinit   eval "$(curator completion zsh)"
    fish  once                          curator completion fish > ~/.config/fish/completions/curator.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "curator", "_CURATOR_COMPLETE").source())


for command in (watch, explore, what_if, recut, trace, failures, replay, compare, new, *COMMANDS, profile,
                call, completion, grafana):
    main.add_command(command)
gc.freeze()  # what was imported is never garbage: the collector need not look at it again


def program() -> None:
    """What is started as `curator`. It has the process that workers are forked from ready before a run needs
    it."""
    if sys.argv[1:2] == ["run"] and not {"-h", "--help"} & set(sys.argv):
        from curator.worker.fork_server import fork_early

        fork_early()
    main()
