"""Limits of control groups, from trees as containers, batch systems and services make them."""

import os

import pytest

from curator.machine import detect as machine
from curator.machine.cgroups import Limits, limits

V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def system(tmp_path, cgroup, mountinfo, **files):
    """A root with what /proc says, and with these files below /sys/fs/cgroup."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    (tmp_path / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + mountinfo)
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_a_slurm_job_in_version_2_has_the_limits_of_its_job_and_its_step(tmp_path):
    job = "system.slice/slurmstepd.scope/job_9"
    root = system(tmp_path, f"0::/{job}/step_0/user/task_0\n", V2, **{
        f"{job}/memory.max": "8000000000\n", f"{job}/cpu.max": "max 100000\n",
        f"{job}/step_0/memory.max": "max\n", f"{job}/step_0/user/task_0/memory.max": "max\n",
        f"{job}/step_0/cpu.max": "250000 100000\n"})
    assert limits(root) == Limits(2.5, 8_000_000_000)


def test_the_smallest_limit_on_the_way_up_counts(tmp_path):
    root = system(tmp_path, "0::/user.slice/run.scope\n", V2, **{
        "user.slice/memory.max": "3000", "user.slice/run.scope/memory.max": "9000", "user.slice/run.scope/memory.high": "5000",
        "user.slice/cpu.max": "400000 100000", "user.slice/run.scope/cpu.max": "50000 100000",
        "other.slice/memory.max": "1", "user.slice/run.scope/below/memory.max": "2"})
    assert limits(root) == Limits(0.5, 3000)


def test_above_memory_high_a_process_is_slowed_down_so_it_is_a_limit(tmp_path):
    root = system(tmp_path, "0::/a.service\n", V2, **{"a.service/memory.max": "max", "a.service/memory.high": "7000"})
    assert limits(root) == Limits(None, 7000)


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/../other\n", "0::/docker/abc\n"])
def test_a_container_sees_its_own_group_as_the_highest(tmp_path, cgroup):
    mounted = "/docker/abc" if "abc" in cgroup else "/"
    root = system(tmp_path, cgroup, V2.replace(" / /sys", f" {mounted} /sys"),
                  **{"memory.max": "4096", "cpu.max": "150000 100000"})
    assert limits(root) == Limits(1.5, 4096)


V1 = ("30 25 0:27 {root} /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
      "31 25 0:28 {root} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "32 25 0:29 {root} /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n")


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path):
    root = system(tmp_path, "4:memory:/slurm/uid_1/job_2\n3:cpu,cpuacct:/slurm/uid_1\n1:name=systemd:/user.slice\n",
                  V1.format(root="/"), **{
                      "memory/memory.limit_in_bytes": "9223372036854771712\n",
                      "memory/slurm/uid_1/job_2/memory.limit_in_bytes": "6000\n",
                      "cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
                      "cpu,cpuacct/slurm/uid_1/cpu.cfs_quota_us": "300000\n",
                      "cpu,cpuacct/slurm/uid_1/cpu.cfs_period_us": "100000\n"})
    assert limits(root) == Limits(3.0, 6000)


def test_a_container_of_version_1_is_mounted_without_what_is_above_it(tmp_path):
    root = system(tmp_path, "4:memory:/docker/abc/inner\n3:cpu,cpuacct:/docker/abc\n", V1.format(root="/docker/abc"), **{
        "memory/memory.limit_in_bytes": "5000", "memory/inner/memory.limit_in_bytes": "7000",
        "cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"})
    assert limits(root) == Limits(0.5, 5000)


def test_both_versions_beside_each_other(tmp_path):
    """As systemd's hybrid mode has it: version 2 without controllers, or with some of them."""
    root = system(tmp_path, "4:memory:/job\n0::/job\n",
                  V1.format(root="/") + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "), **{
                      "memory/job/memory.limit_in_bytes": "6000", "unified/job/cpu.max": "200000 100000",
                      "unified/job/cgroup.procs": "1"})
    assert limits(root) == Limits(2.0, 6000)


@pytest.mark.parametrize("content", ["max", "max 100000", "", "-1", "0 100000", "nonsense", "100000", "1 0"])
def test_what_is_no_limit(tmp_path, content):
    assert limits(system(tmp_path, "0::/a\n", V2, **{"a/cpu.max": content})).cpus is None


def test_what_cannot_be_read_is_no_limit(tmp_path):
    assert limits(tmp_path) == Limits()
    root = system(tmp_path, "0::/a\nnonsense\n", V2 + "nonsense - cgroup\n", **{"a/memory.max/is_a_folder": "1"})
    assert limits(root) == Limits()


def test_a_mount_point_may_have_blanks_in_its_name(tmp_path):
    root = system(tmp_path, "0::/\n", V2.replace("/sys/fs/cgroup", r"/sys/fs/cgroup/of\040all"), **{"of all/memory.max": "77"})
    assert limits(root).memory_bytes == 77


def test_this_machine_is_what_its_limits_leave(monkeypatch):
    assert machine.memory_bytes() > 1 << 20
    assert 1 <= machine.available_cpus() <= (os.cpu_count() or 1)
    monkeypatch.setattr(machine, "limits", lambda: Limits(0.5, 1 << 30))
    assert (machine.available_cpus(), machine.memory_bytes()) == (1.0, 1 << 30)
    monkeypatch.setattr(machine, "limits", lambda: Limits(1e6, 1 << 60))
    assert (machine.available_cpus(), machine.memory_bytes()) == (len(os.sched_getaffinity(0)),
                                                                 os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
