"""Protocol "nbd": commands and deployment of an address space, its managers, and clients that use its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from knee.lab import programs
from knee.lab.command import CONNECTIONS_SPARE, Command, life, port_zero
from knee.lab.deploy.deployment import Deployment
from knee.lab.hosts import Process
from knee.spec import Configuration, Middleware, Store, Workload

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


def manager(process: str, tier: Middleware, free_address: str, stores: Sequence[str], clients: int) -> Command:
    """A manager on a port of its own choice, of a space over the stores at these addresses."""
    argv = [
        str(programs.find("knee-space")),
        *("manager", "--listen", port_zero(free_address), "--threads", str(tier.threads)),
        *("--memory-mb", str(max(_MANAGER_MB, _THREAD_MB * tier.threads))),
        *("--connections-max", str(clients + CONNECTIONS_SPARE)),
        *("--layout", tier.layout),
        *("--store", *stores),
        *life(),
    ]
    return Command(process, "middleware", tuple(argv))


def requests(workload: Workload) -> list[str]:
    """Flags of a load host for the requests of its clients."""
    return ["--block-bytes", str(workload.block_bytes), "--writes", repr(workload.writes)]


class SpaceDeployment(Deployment):
    """The processes of a run with an address space."""

    def _requests(self, index: int, configuration: Configuration) -> list[str]:
        return requests(configuration.workload)

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        managers, stores = configuration.system.middleware, configuration.system.store
        assert managers is not None, "the experiment file was checked"
        if managers.address is not None:
            return [], [], list(managers.address)
        assert stores is not None, "the experiment file was checked"
        processes: list[Process] = []
        parts: Sequence[str] = stores.address or ()
        if stores.address is None:
            connections = _LANES * managers.hosts * managers.threads
            processes, addresses = self._start_tier(
                "store", stores.hosts, lambda name, address: store(name, stores, address, connections)
            )
            parts = [f"{address}={stores.memory_mb}M" for address in addresses]
        clients = configuration.clients
        started, targets = self._start_tier(
            "middleware", managers.hosts, lambda name, address: manager(name, managers, address, parts, clients)
        )
        return processes, started, targets
