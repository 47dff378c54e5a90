"""Hosts that are workers of a Dask cluster: as root, each has a network and a disk of its own, and a boot id like a
machine's. Otherwise all are on the loopback network of one machine."""

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
from labs import knee_run
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
MACHINE = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind "$0" /proc/sys/kernel/random/boot_id && mount -t tmpfs disk "$1" && shift && exec "$@"',
)
"""Runs a program on what looks like another machine, with the boot id in a file and a disk at a directory."""
FIRST = ("clients", "middleware-0", "store-0")
"""The machines of most tests."""
PROGRAMS = ("memcached", "knee-load", "knee-proxy", "knee-kv", "knee-queue", "postgres")

SOAKED = pytest.mark.skipif("KNEE_SOAK" not in os.environ, reason="make soak ends more parts of a cluster")
IMPATIENT = "from knee.lab.hosts import cluster; cluster._REPLACEMENT_S = 2; "


class Machines:
    """A scheduler, a machine of load hosts, one of a middleware and one of a store; and the lab's machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = self._logs = folder
        """The folder of the labs, and that of the machines' logs."""
        self._labs: list[subprocess.Popen[str]] = []
        self._hosts = EmulatedHosts() if IS_ROOT else LocalHost()
        for name in ("lab", "scheduler", *FIRST):
            self._hosts.place(name, Link())
        self.scheduler = "tcp://" + self._hosts.free_address("scheduler")
        host, port = self._interface("scheduler"), self.scheduler.rpartition(":")[2]
        self._arguments = ("scheduler", "scheduler", "--host", host, "--port", port)
        self._scheduler = self._start(*self._arguments)
        self.workers: dict[str, LocalProcess] = {}
        self._fixed: dict[str, tuple[str, ...]] = {}
        self.start_workers()

    def start_workers(self, *others: str) -> None:
        """Start the workers that do not run, and other ones."""
        for name in others:
            self._hosts.place(name, Link())
        for name in (*FIRST, *others):
            if name not in self.workers or self.workers[name].poll() is not None:
                # Without a nanny, a worker is one process: it costs half, but nothing replaces it.
                more = () if name == "store-0" else ("--no-nanny",)
                more += ("--resources", "load=3") if name == "clients" else ()
                more += self._fixed.get(name, ())
                (self._logs / f"{name}.log").unlink(missing_ok=True)
                place = ("--host", self._interface(name), "--name", name, "--local-directory", str(self._disk(name)))
                self.workers[name] = self._start(name, "worker", self.scheduler, *place, *more)
        for name in self.workers:
            log = self._logs / f"{name}.log"
            wait_until(lambda log=log: "Registered to:" in log.read_text(), f"{name} is registered", PATIENCE_S)

    def _interface(self, name: str) -> str:
        return self._hosts.placed(name).address if isinstance(self._hosts, EmulatedHosts) else "127.0.0.1"

    def _start(self, name: str, *arguments: str) -> LocalProcess:
        boot = self._logs / f"{name}.boot"
        boot.write_text(f"{uuid.uuid4()}\n")
        self._disk(name).mkdir(exist_ok=True)
        command = Command(
            name,
            "dask",
            (*((*MACHINE, str(boot), str(self._disk(name))) if IS_ROOT else ()), DASK, *arguments, "--no-dashboard"),
            environment=(("PYTHONPATH", str(REPOSITORY / "python")),),
        )
        return self._hosts.start(command, self._logs / f"{name}.lines", self._logs / f"{name}.log", lambda *_: None)

    def _disk(self, name: str) -> Path:
        return self._logs / f"{name}.disk"

    def on_disk(self, worker: str, pattern: str = "*") -> list[Path]:
        """The files of programs on the disk of a worker, which other machines do not see."""
        disk = self._disk(worker)
        seen = Path(f"/proc/{self.workers[worker].pid}/root{disk}") if IS_ROOT else disk
        return list(seen.glob(f"dask-scratch-space/*/knee-*/{pattern}"))

    def on_labs_disk(self) -> list[Path]:
        """The temporary files of labs."""
        return [path for path in self.folder.glob("runs/*/.*.scratch/**/*") if path.is_file()]

    def end_workers(self, *names: str) -> None:
        for name in names:
            self.workers.pop(name).stop(PATIENCE_S)

    def lab(
        self,
        *settings: str,
        before: str = "",
        resume: Path | None = None,
        experiment: str = "baseline-one-middleware",
        short: tuple[str, ...] = SHORT,
        address: str | None = None,
    ) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", f"{before}from knee.__main__ import main; main()", "run", "--no-report"]
        argv += ["--cluster", address or self.scheduler]
        if resume is None:
            argv.append(str(REPOSITORY / "experiments" / f"{experiment}.toml"))
            argv += [part for setting in (*short, *settings) for part in ("--set", setting)]
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

    def kill_scheduler(self) -> None:
        self._scheduler.kill()

    def restart_scheduler(self) -> None:
        """Start a scheduler in place of the killed one, without whose connection the workers have ended."""
        wait_until(lambda: all(each.poll() is not None for each in self.workers.values()), "workers end", PATIENCE_S)
        self._scheduler = self._start(*self._arguments)

    def worker_address(self, name: str) -> str:
        log = (self._logs / f"{name}.log").read_text()
        return log.rpartition("Start worker at:")[2].split()[0]

    def fix_port(self, name: str) -> str:
        """Restart a worker at a port that its successors keep; return the port."""
        port = self._hosts.free_address(name).rpartition(":")[2]
        self.workers.pop(name).stop(PATIENCE_S)
        self._fixed[name] = ("--worker-port", port)
        self.start_workers()
        return port

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
        return [each for each in below if each.name() in PROGRAMS]

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
    all_machines.end_workers(*(name for name in list(all_machines.workers) if name not in FIRST))


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


def test_versioned_store_has_its_data_and_graph_on_its_own_disk(machines: Machines) -> None:
    running = machines.lab(
        "store.durability=always",
        "workload.mix=read:1,put:1",
        "workload.graph.users=300",
        "workload.graph.largest=250",
        "workload.keys=300",
        "workload.key_draws=300",
        "workload.think_ms=20",
        "load.clients=[4]",
        "measure.seconds=3",
        "measure.repetitions=2",
        experiment="kv-zipf-reads",
        short=(),
    )
    wait_until(
        lambda: running.poll() is not None or bool(machines.on_disk("store-0", "data/store-0/*")),
        "the data are on the store's disk",
        PATIENCE_S,
    )
    graphs = machines.on_disk("store-0", "graph.txt")
    elsewhere = [*machines.on_disk("clients", "graph.txt"), *machines.on_labs_disk()]
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    assert (len(graphs), elsewhere) == (1, [])
    dataset = machines.dataset()
    stores = dataset.stations.filter(role="store")
    assert stores["commit_records"].sum() > 0 < dataset.totals.filter(role="load")["count"].min(), stores
    # Only the first run made the graph.
    assert len(list(dataset.path.glob("points/*/graph-0.log"))) == 1
    assert all("graph-0" in commands for commands in dataset.manifest["commands"].values())
    assert_nothing_left(machines)
    assert_filesystem_is_the_stores(dataset)


def assert_nothing_left(machines: Machines) -> None:
    assert not [left for name in machines.workers for left in machines.on_disk(name)]


def assert_filesystem_is_the_stores(dataset: Dataset) -> None:
    """The lab's disk is another one."""
    if IS_ROOT:
        assert dataset.manifest["scratch"]["filesystem"] == "tmpfs"
        assert any("`dask worker --local-directory`" in note for note in dataset.manifest["notes"])


def test_queue_has_its_database_on_a_worker(machines: Machines) -> None:
    running = machines.lab(
        "workload.backlog=10",
        "workload.think_ms=20",
        "load.clients=[4]",
        "store.memory_mb=16",
        "store.cpus=1",
        "store.indexes=arrival",
        "measure.seconds=4",
        "measure.repetitions=1",
        experiment="queue-one-server",
        short=(),
    )
    # Programs also start for a moment to print their versions.
    machines.wait_for_load()
    names = {name: {each.name() for each in machines.programs(name)} for name in ("middleware-0", "store-0")}
    modes = {file.stat().st_mode & 0o777 for file in machines.on_disk("middleware-0", "password")}
    database = machines.on_disk("store-0", "data/store-0/PG_VERSION")
    elsewhere = [*machines.on_disk("middleware-0", "data/*"), *machines.on_disk("clients", "password")]
    elsewhere += machines.on_labs_disk()
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    assert names == {"middleware-0": {"knee-queue"}, "store-0": {"postgres"}}
    assert (len(database), modes, elsewhere) == (1, {0o600}, [])
    dataset = machines.dataset()
    assert observations(dataset)["throughput"][0] > 10
    assert {"initdb", "postgres", "psql"} <= set(dataset.manifest["cluster"]["workers"]["store-0"]["programs"])
    assert_nothing_left(machines)
    assert_filesystem_is_the_stores(dataset)


FEW = ("load.hosts=3", "load.clients=[6]", "workload.think_ms=20", "measure.seconds=3", "measure.repetitions=1")
LAYOUTS = {
    "baseline-two-middlewares": ((*SHORT, "store.hosts=3"), 3, 2, 3),
    "queue-one-server": ((*FEW, "middleware.hosts=2", "middleware.connections=2", "store.memory_mb=16"), 3, 2, 1),
    "kv-durability": ((*FEW, "store.hosts=3", 'store.durability=["always"]', "workload.keys=200"), 3, 0, 3),
}
"""Settings of experiments, and their numbers of load hosts, middlewares and stores."""


@SOAKED
def test_each_host_of_a_large_layout_has_a_machine(machines: Machines, tmp_path: Path) -> None:
    machines.start_workers("load-1", "load-2", "middleware-1", "store-1", "store-2")
    for experiment, (settings, loads, middlewares, stores) in LAYOUTS.items():
        machines.folder = tmp_path / experiment
        machines.folder.mkdir()
        running = machines.lab(experiment=experiment, short=settings)
        # Eight machines share the processors.
        _, said = running.communicate(timeout=3 * PATIENCE_S)
        assert running.returncode == 0, said
        dataset = machines.dataset()
        hosts = [
            f"{tier}-{index}"
            for tier, count in (("load", loads), ("middleware", middlewares), ("store", stores))
            for index in range(count)
        ]
        workers = {host: "clients" if host == "load-0" else host for host in hosts}
        assert dataset.manifest["cluster"]["hosts"] == workers
        assert set(dataset.probes["machine"]) == (set(workers.values()) if IS_ROOT else {"clients"})
        assert observations(dataset)["throughput"][0] > 0
        assert_nothing_left(machines)


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
    assert_nothing_left(machines)


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
    assert_nothing_left(machines)


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


@SOAKED
def test_worker_that_returns_at_its_address_takes_its_host(machines: Machines) -> None:
    port = machines.fix_port("store-0")
    running = machines.lab("measure.seconds=6")
    machines.wait_for_load()
    (store,) = machines.programs("store-0")
    worker = psutil.Process(store.pid).parents()[1]
    assert worker.pid != machines.workers["store-0"].pid, "a nanny is above the worker"
    worker.kill()
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    cluster = machines.dataset().manifest["cluster"]
    assert cluster["workers"]["store-0"]["address"].endswith(f":{port}")
    assert len(cluster["lost"]) == 1
    assert_nothing_left(machines)


STEPPING = (
    "import time, types; from knee.lab.hosts import cluster; begun, start = [], cluster.ClusterHost.start; "
    "cluster.time = types.SimpleNamespace(**vars(time)); "
    "cluster.time.time = lambda: time.time() + (1 if begun else 0); "
    "cluster.ClusterHost.start = lambda *a: (begun.append(a), start(*a))[1]; "
)
"""The lab's clock steps by a second after the first program has started."""


@SOAKED
def test_clock_that_steps_between_runs_ends_the_lab(machines: Machines) -> None:
    running = machines.lab("measure.repetitions=2", "measure.seconds=3", before=STEPPING)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, said
    assert "worker clients: its clock differs from this machine's clock by -1.0" in said
    # The order of the repetitions is random.
    assert sorted(machines.dataset().points["status"]) == ["done", "failed"]


def test_address_without_a_scheduler_is_refused(machines: Machines, tmp_path: Path) -> None:
    worker = machines.worker_address("store-0")
    lab = machines.lab(address=worker)
    # Dask's client alone would wait for a minute, and then print a traceback.
    _, said = lab.communicate(timeout=30)
    assert lab.returncode == 1, said
    assert said == f"knee: {worker}: is a Dask worker; give the address that `dask scheduler` prints\n"
    for address, reason in {
        "http://127.0.0.1:8786": "unknown address scheme",
        "127.0.0.1": "missing port number",
        "tls://127.0.0.1:8786": "TLS",
    }.items():
        local = ("--set", "measure.hosts=local")
        code, said = knee_run(tmp_path, "baseline-one-middleware", *local, "--cluster", address)
        assert code == 1, said
        assert said.startswith(f"knee: {address}: ") and reason in said


def test_second_lab_is_refused_and_interrupted_first_leaves_no_process(machines: Machines) -> None:
    running = machines.lab("measure.seconds=60")
    machines.wait_for_load()
    _, said = machines.lab().communicate(timeout=PATIENCE_S)
    assert "worker clients: another `knee run` uses it; wait for its end" in said
    programs = [each for name in machines.workers for each in machines.programs(name)]
    agents = [each.parent() for each in programs]
    assert len(programs) == 5
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130, said
    assert machines.dataset().points["status"].to_list() == ["interrupted"]
    assert all(is_gone(each) for each in [*programs, *agents] if each is not None)
    assert_nothing_left(machines)


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
    # Without the resumed lab, they would run for two more minutes.
    wait_until(lambda: all(map(is_gone, left)), "the killed lab's programs have ended", 30)
    _, said = resumed.communicate(timeout=PATIENCE_S)
    assert resumed.returncode == 0, said
    dataset = machines.dataset()
    assert dataset.points["status"].to_list() == ["done", "done"]
    (again,) = dataset.manifest["resumed"]
    assert again["cluster"]["hosts"] == begun.manifest["cluster"]["hosts"]
    assert not any(machines.programs(name) for name in machines.workers)
    assert_nothing_left(machines)


def test_host_of_a_later_point_without_a_worker_is_named_before_the_first(machines: Machines) -> None:
    running = machines.lab("middleware.hosts=[1, 2]", before=IMPATIENT.replace("_REPLACEMENT_S", "_JOINING_S"))
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, said
    assert "middleware-1: no worker of the cluster takes it" in said
    assert not list(machines.folder.glob("runs/*/*"))


@SOAKED
def test_lost_scheduler_ends_the_programs_and_the_lab(machines: Machines) -> None:
    running = machines.lab("measure.seconds=60")
    machines.wait_for_load()
    programs = [each for name in machines.workers for each in machines.programs(name)]
    machines.kill_scheduler()
    _, said = running.communicate(timeout=PATIENCE_S)
    machines.restart_scheduler()
    assert running.returncode == 1, said
    lost = f"{machines.scheduler}: the scheduler is lost; start it and its workers again"
    assert f"knee: {lost}\nfinished measurements are kept; continue with `knee run --resume " in said
    assert "Traceback" not in said
    assert machines.dataset().points["reason"].to_list() == [lost]
    assert all(map(is_gone, programs))
