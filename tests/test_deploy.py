"""The files in deploy/ say what is true of the code: versions, commands and options that there are, fields that KubeRay knows."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from curator.cli.main import main
from curator.run.folder.shards import Shard
from tests.engine.small_stages import wait_until

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if line.count("==") == 1)
COMMAND = re.compile(r"^[#\s]*(?:entrypoint: |ray job submit .*-- |docker run .* curator )?(curator (?:run|show) .+)$", re.MULTILINE)


def commands(path):
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [found.split("#")[0].split("&")[0].strip() for found in COMMAND.findall(text)]


@pytest.mark.parametrize("path", ["deploy/Dockerfile", "deploy/slurm/array.sbatch", "deploy/slurm/ray.sbatch",
                                  "deploy/kuberay/rayjob.yaml", "docs/deploy.md"])
def test_commands_have_the_options_that_they_use(path):
    found = commands(ROOT / path)
    assert found, f"{path} names no command"
    for command in found:
        words = [word for word in shlex.split(command.replace("[", "").replace("]", "")) if not word.startswith("$")]
        known = {option for p in main.commands[words[1]].params if isinstance(p, click.Option) for option in (*p.opts, *p.secondary_opts)}
        assert {word.split("=")[0] for word in words if word.startswith("-")} <= known, command


def test_versions_are_those_that_are_tested():
    docker, job = (DEPLOY / "Dockerfile").read_text(), yaml.safe_load((DEPLOY / "kuberay/rayjob.yaml").read_text())
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == PINS["ray"]
    assert f"torch=={PINS['torch']}" in docker
    assert f"opencv-python-headless=={PINS['opencv-python']}" in docker
    packs = {f"./packs/{p.parent.name}" for p in (ROOT / "packs").glob("*/pyproject.toml")}
    assert packs <= set(docker.split())
    copied = {word for line in re.findall(r"^COPY (?!--)(.*)$", docker, re.MULTILINE) for word in line.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)


# Of ray-operator/apis/ray/v1: rayjob_types.go and raycluster_types.go.
JOB = {"entrypoint", "submissionMode", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "submitterConfig",
       "rayClusterSpec", "runtimeEnvYAML", "activeDeadlineSeconds"}
CLUSTER = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_the_manifest_has_the_fields_that_kuberay_knows():
    job = yaml.safe_load((DEPLOY / "kuberay/rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"].keys() <= JOB
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster.keys() <= CLUSTER
    head, groups = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head.keys() <= GROUP
    assert [group["groupName"] for group in groups] == ["cpu", "gpu"]
    for group in (head, *groups):
        assert group.keys() <= GROUP
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "KubeRay wants texts"
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]  # so the pod is the last to be evicted
        store = int(group["rayStartParams"]["object-store-memory"])
        assert store < 0.3 * int(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 2**30
    for group in groups:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        spec = group["template"]["spec"]
        assert spec["terminationGracePeriodSeconds"] > 30  # of `ray stop`, before the pod goes
        assert any(mount["mountPath"] == "/dev/shm" for mount in spec["containers"][0]["volumeMounts"])


@pytest.mark.parametrize("name", ["array", "ray"])
def test_slurm_scripts_are_scripts(name):
    path = DEPLOY / f"slurm/{name}.sbatch"
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    first, *rest = path.read_text().splitlines()
    assert first == "#!/bin/bash"
    options = [line for line in rest if line.startswith("#SBATCH")]
    assert options == rest[rest.index(options[0]):][:len(options)], "Slurm reads no option behind the first command"


def test_the_array_gives_each_task_its_shard_and_the_job_behind_it_none(tmp_path):
    fake = tmp_path / "curator"
    fake.write_text("#!/bin/bash\necho $@\n")
    fake.chmod(0o755)

    def told(**slurm):
        ran = subprocess.run(["bash", str(DEPLOY / "slurm/array.sbatch"), "recipe.yaml", "/out", "--yes"], capture_output=True, text=True,
                             env={"PATH": f"{tmp_path}:/usr/bin:/bin", **slurm}, check=True)
        return ran.stdout.split()

    array = told(SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_TASK_COUNT="8")
    assert str(Shard.of(array[array.index("--shard") + 1])) == "3/8"
    some = told(SLURM_ARRAY_TASK_ID="7", SLURM_ARRAY_TASK_COUNT="2", SHARDS="8")
    assert "7/8" in some
    assert told() == ["run", "recipe.yaml", "--yes", "--out", "/out", "--quiet"]


@pytest.mark.parametrize(("sent", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_task_whose_time_is_over_is_queued_again_and_one_that_is_cancelled_is_not(tmp_path, sent, again):
    (tmp_path / "curator").write_text(f"#!/bin/bash\ntrap 'echo stopped > {tmp_path}/said; exit 143' TERM\ntouch {tmp_path}/began\n"
                                      "while :; do sleep 0.05; done\n")
    (tmp_path / "scontrol").write_text(f"#!/bin/bash\necho $@ > {tmp_path}/queued\n")
    for name in ("curator", "scontrol"):
        (tmp_path / name).chmod(0o755)
    job = subprocess.Popen(["bash", str(DEPLOY / "slurm/array.sbatch"), "recipe.yaml", "/out"], start_new_session=True,
                           env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8",
                                "SLURM_ARRAY_JOB_ID": "42"})
    try:
        wait_until(lambda: (tmp_path / "began").exists())
        if again:
            job.send_signal(sent)
        else:
            os.killpg(job.pid, sent)  # as Slurm does: to all of the job
        job.wait(20)
        wait_until(lambda: (tmp_path / "said").exists())
        assert (tmp_path / "queued").exists() == again
        assert not again or (tmp_path / "queued").read_text() == "requeue 42_3\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
