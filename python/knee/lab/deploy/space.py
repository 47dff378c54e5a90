"""Protocol "nbd": commands and deployment of an address space, its managers, and clients that use its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from knee.lab import programs
from knee.lab.command import CONNECTIONS_SPARE, Command, addressed_to, life, pacing, port_zero
from knee.lab.deploy.deployment import Deployment, address_of
from knee.lab.hosts import Process
from knee.spec import Configuration, Middleware, Store

_LANES = 2
"""Connections of a manager's thread to each store."""
_THREAD_MB = 64
_MANAGER_MB = 256
"""Memory for the data of requests: at least so much for each thread of a manager, and for a manager."""


def store(process: str, tier: Store, free_address: str, connections: int) -> Command:
    """A storage machine: `tier.memory_mb` of the address space."""
    argv = [
        str(programs.find("knee-space")),
        *("store", "--listen", port_zero(free_address), "--bytes", f"{tier.memory_mb}M"),
        *("--connections-max", str(connections + CONNECTIONS_SPARE)),
        *life(),
    ]
    return Command(process, "store", tuple(argv))


def manager(process: str, tier: Middleware, host: str, stores: Sequence[str], clients: int) -> Command:
    """A manager on a port of its own choice, of a space over the stores at these addresses."""
    argv = [
        str(programs.find("knee-space")),
        *("manager", "--listen", f"{host}:0", "--threads", str(tier.threads)),
        *("--memory-mb", str(max(_MANAGER_MB, _THREAD_MB * tier.threads))),
        *("--connections-max", str(clients + CONNECTIONS_SPARE)),
        *("--layout", tier.layout),
        *("--store", *stores),
        *life(),
    ]
    return Command(process, "middleware", tuple(argv))


def load(
    index: int, configuration: Configuration, managers: Sequence[str], start_at: int, seconds: int, seed: int
) -> Command:
    """The clients of one load host, dealt to the managers in turn; each host begins with another manager."""
    tier, workload = configuration.system.load, configuration.workload
    first, clients = index % len(managers), configuration.clients // tier.hosts
    argv = [
        str(programs.find("knee-load")),
        *("nbd", *addressed_to([*managers[first:], *managers[:first]])),
        *("--clients", str(clients), "--threads", str(min(tier.threads, clients))),
        *("--seconds", str(seconds), "--start-at", str(start_at), "--seed", str(seed + index)),
        *pacing(workload, tier.hosts),
        *("--block-bytes", str(workload.block_bytes), "--writes", repr(workload.writes)),
        *(["--verify"] if workload.verify else []),
        *life(),
    ]
    return Command(f"load-{index}", "load", tuple(argv))


class SpaceDeployment(Deployment):
    """The processes of a run with an address space."""

    def _load(self, index: int, configuration: Configuration, targets: list[str], start_at: int) -> Command:
        return load(index, configuration, targets, start_at, self._seconds, self._seed)

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        managers, stores = configuration.system.middleware, configuration.system.store
        assert managers is not None, "the experiment file was checked"
        if managers.address is not None:
            return [], [], list(managers.address)
        assert stores is not None, "the experiment file was checked"
        connections = _LANES * managers.hosts * managers.threads
        processes = [
            self._start(store(name, stores, self._host.free_address(name), connections))
            for name in (f"store-{index}" for index in range(stores.hosts if stores.address is None else 0))
        ]
        sized = [f"{address_of(process)}={stores.memory_mb}M" for process in processes]
        started = []
        for index in range(managers.hosts):
            name = f"middleware-{index}"
            interface = self._host.free_address(name).rpartition(":")[0]
            parts = sized if stores.address is None else stores.address
            started.append(self._start(manager(name, managers, interface, parts, configuration.clients)))
        return processes, started, [address_of(process) for process in started]
