"""The workflow on a real SLURM of one node, which these tests start; nothing is written to /etc.

It needs the Debian packages slurmctld, slurmd, slurm-client and munge, and root.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from grid import snakemake, start
from test_workflow import LONG, ONE_RUN, TINY, checksums, run_tiny, tiny_copy

from attention_dynamics.storage.files import write_text

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue")
PROFILE = (
    "--profile", "workflow/profiles/slurm", "--configfile", "tiny.yaml", "--latency-wait", "10",
    "--slurm-init-seconds-before-status-checks", "5",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)),
        reason="needs root and the packages slurmctld, slurmd, slurm-client and munge",
    ),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_settings(home: Path) -> None:
    host = socket.gethostname().split(".")[0]
    # With cgroup, as on clusters, SLURM signals only the first process of a job step.
    tracking = "cgroup" if Path("/sys/fs/cgroup/freezer").exists() else "linuxproc"
    settings = {
        "ClusterName": "one",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": free_port(),
        "SlurmdPort": free_port(),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={home}/munge/socket",
        "StateSaveLocation": home / "state",
        "SlurmdSpoolDir": home / "spool",
        "SlurmctldPidFile": home / "slurmctld.pid",
        "SlurmdPidFile": home / "slurmd.pid",
        "ProctrackType": f"proctrack/{tracking}",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "ReturnToService": 2,
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    cpus = os.cpu_count()
    lines.append(f"NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=5000 State=UNKNOWN")
    lines.append("PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    write_text(home / "slurm.conf", "\n".join(lines) + "\n")
    write_text(home / "cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment of a running SLURM."""
    home = tmp_path_factory.mktemp("slurm")
    for name in ("munge", "state", "spool", "bin"):
        (home / name).mkdir()
    (home / "munge").chmod(0o700)
    (home / "munge/key").write_bytes(os.urandom(1024))
    (home / "munge/key").chmod(0o400)
    write_settings(home)
    # Snakemake's plugin removes SLURM_CONF from the environment of srun.
    srun = f'#!/bin/sh\nSLURM_CONF={home}/slurm.conf exec {shutil.which("srun")} "$@"\n'
    (home / "bin/srun").write_text(srun)
    (home / "bin/srun").chmod(0o755)
    variables = {
        "SLURM_CONF": f"{home}/slurm.conf",
        "PATH": f"{home}/bin:{os.environ['PATH']}",
    }
    munge = ("key-file", "socket", "pid-file", "log-file", "seed-file")
    paths = [f"--{name}={home}/munge/{name.removesuffix('-file')}" for name in munge]
    daemons = []

    def daemon(*words: str) -> None:
        with open(home / f"{words[0]}.txt", "w") as printed:
            daemons.append(
                subprocess.Popen(
                    words, env={**os.environ, **variables}, stdout=printed, stderr=printed
                )
            )

    try:
        daemon("munged", "--foreground", "--force", *paths)
        wait_for(lambda: (home / "munge/socket").exists())
        daemon("slurmctld", "-D")
        daemon("slurmd", "-D")
        wait_for(lambda: ask(variables, "sinfo", "-h", "-o", "%T") == ["idle"])
        yield variables
    finally:
        for process in reversed(daemons):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(condition, seconds: int = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def ask(variables: dict[str, str], *words: str) -> list[str]:
    """The lines that a command of SLURM prints."""
    process = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )
    return process.stdout.split("\n")[:-1]


def begun(root: Path, process: subprocess.Popen) -> bool:
    """Whether the run has a checkpoint; AssertionError if Snakemake has ended."""
    assert process.poll() is None, (root / "snakemake.txt").read_text()
    return (root / ONE_RUN / "model0").exists()


def halt_script(root: Path) -> None:
    """Send SIGSTOP to the training script of ``root``."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            mine = (folder / "cwd").readlink() == root / "classification"
        except OSError:
            continue
        if mine and words[0].endswith(b"python") and b"train_classifier.py" in words[1:2]:
            os.kill(int(folder.name), signal.SIGSTOP)
            return
    pytest.fail("the script of the job is not among the processes")


def test_a_grid_on_slurm(slurm, tmp_path):
    here, there = tiny_copy(tmp_path / "here", TINY), tiny_copy(tmp_path / "there", TINY)
    run_tiny(here, "classification/results/mine.pkl")
    snakemake(there, "classification/results/mine.pkl", *PROFILE, **slurm)
    made = ("classification/models/mine/*/model*", "classification/*/*.pkl")
    assert checksums(there, *made) == checksums(here, *made)


@pytest.mark.parametrize(
    ("stop", "grid"),
    [
        (lambda slurm: ask(slurm, "scancel", ask(slurm, "squeue", "-h", "-o", "%i")[0]), LONG),
        # The shortest time limit is one minute.
        (lambda slurm: None, LONG + "resources: {classification: {train: {runtime: 1}}}\n"),
    ],
    ids=["cancelled", "at its time limit"],
)
def test_a_job_that_slurm_ends_resumes(slurm, tmp_path, stop, grid):
    """The script is halted until SLURM continues and terminates it, so that it cannot finish."""
    whole, root = tiny_copy(tmp_path / "whole", LONG), tiny_copy(tmp_path / "copy", grid)
    process = start(root, f"{ONE_RUN}/run.json", *PROFILE, **slurm)
    wait_for(lambda: begun(root, process))
    halt_script(root)
    stop(slurm)
    wait_for((root / ONE_RUN / "state").exists)
    assert process.wait(600) == 0, (root / "snakemake.txt").read_text()
    assert "Trying to restart job" in (root / "snakemake.txt").read_text()
    run_tiny(whole, f"{ONE_RUN}/run.json")
    assert checksums(root, f"{ONE_RUN}/model*") == checksums(whole, f"{ONE_RUN}/model*")
