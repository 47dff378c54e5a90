"""Hosts that are workers of a Dask cluster: as root, each has a network of its own, and a boot id like a machine's.
Otherwise all are on the loopback network of one machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from systems import is_gone, wait_until

from knee.data import Dataset
from knee.data.observations import observations
from knee.data.utilization import utilizations
from knee.lab.command import Command
from knee.lab.hosts import Link
from knee.lab.hosts.emulated import EmulatedHosts
from knee.lab.hosts.local import LocalHost, LocalProcess

PATIENCE_S = 120
REPOSITORY = Path(__file__).resolve().parents[2]
DASK = str(Path(sys.executable).with_name("dask"))
IS_ROOT = os.geteuid() == 0

SHORT = (
    "measure.hosts=local",
    "measure.seconds=4",
    "measure.repetitions=1",
    'workload.set_get=["0:1"]',
    "workload.keys=200",
    "workload.think_ms=10",
    "middleware.workers=[8]",
    "load.clients=[6]",
)
MACHINE = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"')
"""Runs a program on what looks like another machine, with the boot id in a file."""

SOAKED = pytest.mark.skipif("KNEE_SOAK" not in os.environ, reason="make soak ends the lab and an agent as well")
IMPATIENT = "from knee.lab.hosts import cluster; cluster._REPLACEMENT_S = 2; "


class Machines:
    """A scheduler, a machine of load hosts, one of a middleware and one of a store; and the lab's machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = self._logs = folder
        """The folder of the labs, and that of the machines' logs."""
        self._labs: list[subprocess.Popen[str]] = []
        self._hosts = EmulatedHosts() if IS_ROOT else LocalHost()
        for name in ("lab", "scheduler", "clients", "middleware-0", "store-0"):
            self._hosts.place(name, Link())
        self.scheduler = "tcp://" + self._hosts.free_address("scheduler")
        host, port = self._interface("scheduler"), self.scheduler.rpartition(":")[2]
        self._start("scheduler", "scheduler", "--host", host, "--port", port)
        self.workers: dict[str, LocalProcess] = {}
        self.start_workers()

    def start_workers(self) -> None:
        """Start the workers that do not run."""
        for name in ("clients", "middleware-0", "store-0"):
            if name not in self.workers or self.workers[name].poll() is not None:
                # Without a nanny, a worker is one process: it costs half, but nothing replaces it.
                more = () if name == "store-0" else ("--no-nanny",)
                more += ("--resources", "load=3") if name == "clients" else ()
                (self._logs / f"{name}.log").unlink(missing_ok=True)
                place = ("--host", self._interface(name), "--name", name, *more)
                self.workers[name] = self._start(name, "worker", self.scheduler, *place)
        for name in self.workers:
            log = self._logs / f"{name}.log"
            wait_until(lambda log=log: "Registered to:" in log.read_text(), f"{name} is registered", PATIENCE_S)

    def _interface(self, name: str) -> str:
        return self._hosts.placed(name).address if isinstance(self._hosts, EmulatedHosts) else "127.0.0.1"

    def _start(self, name: str, *arguments: str) -> LocalProcess:
        boot = self._logs / f"{name}.boot"
        boot.write_text(f"{uuid.uuid4()}\n")
        command = Command(
            name,
            "dask",
            (*((*MACHINE, str(boot)) if IS_ROOT else ()), DASK, *arguments, "--no-dashboard"),
            environment=(("PYTHONPATH", str(REPOSITORY / "python")),),
        )
        return self._hosts.start(command, self._logs / f"{name}.lines", self._logs / f"{name}.log", lambda *_: None)

    def lab(self, *settings: str, before: str = "", resume: Path | None = None) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", f"{before}from knee.__main__ import main; main()", "run", "--no-report"]
        argv += ["--cluster", self.scheduler]
        if resume is None:
            argv.append(str(REPOSITORY / "experiments" / "baseline-one-middleware.toml"))
            argv += [part for setting in (*SHORT, *settings) for part in ("--set", setting)]
        else:
            argv += ["--resume", str(resume)]
        if isinstance(self._hosts, EmulatedHosts):
            argv = list(self._hosts.placed("lab").namespace.entering(argv))
        lab = subprocess.Popen(
            argv,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._labs.append(lab)
        return lab

    def wait_for_load(self) -> None:
        """Wait until the clients have printed a second."""
        lines = "runs/*/*/points/*/load-0.jsonl"
        wait_until(
            lambda: (
                self._labs[-1].poll() is not None or any(path.stat().st_size > 1000 for path in self.folder.glob(lines))
            ),
            "clients run",
            PATIENCE_S,
        )

    def programs(self, worker: str) -> list[psutil.Process]:
        """The programs of a worker."""
        below = psutil.Process(self.workers[worker].pid).children(recursive=True)
        return [each for each in below if each.name() in ("memcached", "knee-load", "knee-proxy")]

    def dataset(self) -> Dataset:
        (path,) = self.folder.glob("runs/*/*")
        return Dataset.open(path)

    def end_labs(self) -> None:
        for lab in self._labs:
            lab.kill()
            lab.communicate()
        self._labs.clear()

    def close(self) -> None:
        self._hosts.close(2)


@pytest.fixture(scope="module")
def all_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    machines = Machines(tmp_path_factory.mktemp("machines"))
    yield machines
    machines.close()


@pytest.fixture
def machines(all_machines: Machines, tmp_path: Path) -> Iterator[Machines]:
    """All machines with their workers, and a new folder for labs."""
    all_machines.start_workers()
    all_machines.folder = tmp_path
    yield all_machines
    all_machines.end_labs()


def test_baseline_runs_on_workers_and_its_folder_is_here(machines: Machines) -> None:
    running = machines.lab()
    machines.wait_for_load()
    names = {name: sorted({each.name() for each in machines.programs(name)}) for name in machines.workers}
    assert names == {"clients": ["knee-load"], "middleware-0": ["knee-proxy"], "store-0": ["memcached"]}
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    dataset = machines.dataset()
    assert observations(dataset)["throughput"][0] > 100
    cluster = dataset.manifest["cluster"]
    assert cluster["hosts"] == {
        "load-0": "clients",
        "load-1": "clients",
        "load-2": "clients",
        "middleware-0": "middleware-0",
        "store-0": "store-0",
    }
    for worker in cluster["workers"].values():
        # All have one clock, so the error of the measurement is its whole deviation.
        assert abs(worker["clock_ahead_s"]) <= worker["clock_error_s"] < 1, worker
    assert dataset.manifest["programs"]["memcached"]["version"].startswith("memcached ")
    targets = set(dataset.probes["target"])
    agents = {"knee-0", "knee-1", "knee-2"}
    assert targets == {"host", *agents, "load-0", "load-1", "load-2", "middleware-0", "store-0"}
    assert set(dataset.probes["machine"]) == (set(machines.workers) if IS_ROOT else {"clients"})
    busy = utilizations(dataset).filter(resource="host CPU")
    assert set(busy.select("role", "process").rows()) == (
        {("load", "clients"), ("middleware", "middleware-0"), ("store", "store-0")} if IS_ROOT else {("host", "host")}
    )
    assert busy["utilization"].is_between(0.01, 1.1).all(), busy
    assert not any(machines.programs(name) for name in machines.workers)


def test_point_of_a_lost_worker_is_repeated(machines: Machines) -> None:
    running = machines.lab("measure.seconds=6")
    machines.wait_for_load()
    (store,) = machines.programs("store-0")
    # Dask's nanny starts another worker of this name.
    agent = store.parent()
    assert agent is not None
    worker = agent.parent()
    assert worker is not None
    worker.kill()
    killed_s = time.time()
    wait_until(lambda: is_gone(store) and is_gone(agent), "the store ends with its worker", PATIENCE_S)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    assert "worker store-0 (tcp://" in said
    dataset = machines.dataset()
    (lost,) = dataset.manifest["cluster"]["lost"]
    assert lost.startswith("worker store-0 (tcp://"), lost
    assert dataset.points["status"].to_list() == ["done"]
    # The repeated point was measured after the loss.
    assert (dataset.summaries["started_unix_s"] > killed_s).all()


@SOAKED
def test_worker_of_an_ended_agent_starts_another(machines: Machines) -> None:
    running = machines.lab("measure.seconds=6")
    machines.wait_for_load()
    (store,) = machines.programs("store-0")
    agent = store.parent()
    assert agent is not None
    agent.kill()
    wait_until(lambda: is_gone(store), "the store ends with its agent", PATIENCE_S)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    cluster = machines.dataset().manifest["cluster"]
    assert cluster["lost"] == [
        f"worker store-0 ({cluster['workers']['store-0']['address']}) was lost: its agent has ended"
    ]


def test_worker_without_a_replacement_is_named(machines: Machines) -> None:
    running = machines.lab("measure.seconds=60", before=IMPATIENT)
    machines.wait_for_load()
    ended = [each for name in machines.workers for each in machines.programs(name)]
    for process in reversed([psutil.Process(machines.workers["store-0"].pid), *machines.programs("store-0")]):
        process.kill()
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, said
    assert "store-0: no worker of the cluster takes it (workers: clients, middleware-0); start one with" in said
    dataset = machines.dataset()
    assert dataset.points["status"].to_list() == ["failed"]
    resume = f"knee run --resume {dataset.path.relative_to(machines.folder)} --cluster {machines.scheduler}"
    assert f"continue with `{resume}`" in said
    wait_until(lambda: all(map(is_gone, ended)), "all programs have ended", PATIENCE_S)


def test_interrupted_lab_leaves_no_process_on_workers(machines: Machines) -> None:
    running = machines.lab("measure.seconds=60")
    machines.wait_for_load()
    programs = [each for name in machines.workers for each in machines.programs(name)]
    agents = [each.parent() for each in programs]
    assert len(programs) == 5
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, said
    assert machines.dataset().points["status"].to_list() == ["interrupted"]
    assert all(is_gone(each) for each in [*programs, *agents] if each is not None)


@SOAKED
def test_run_of_a_killed_lab_resumes_without_its_programs(machines: Machines) -> None:
    killed = machines.lab("load.clients=[6, 12]", "measure.seconds=6")
    machines.wait_for_load()
    left = [each for name in machines.workers for each in machines.programs(name)]
    killed.kill()
    killed.communicate()
    assert len(left) == 5
    assert not any(map(is_gone, left))
    begun = machines.dataset()
    resumed = machines.lab(resume=begun.path)
    # Without the resumed lab, they would run for another minute.
    wait_until(lambda: all(map(is_gone, left)), "the killed lab's programs have ended", 30)
    _, said = resumed.communicate(timeout=PATIENCE_S)
    assert resumed.returncode == 0, said
    dataset = machines.dataset()
    assert dataset.points["status"].to_list() == ["done", "done"]
    (again,) = dataset.manifest["resumed"]
    assert again["cluster"]["hosts"] == begun.manifest["cluster"]["hosts"]
    assert not any(machines.programs(name) for name in machines.workers)


def test_host_of_a_later_point_without_a_worker_is_named_before_the_first(machines: Machines) -> None:
    running = machines.lab("middleware.hosts=[1, 2]", before=IMPATIENT.replace("_REPLACEMENT_S", "_JOINING_S"))
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, said
    assert "middleware-1: no worker of the cluster takes it" in said
    assert not list(machines.folder.glob("runs/*/*"))
