"""Protocol "memcached": commands and deployment of caches, middlewares and clients."""

from __future__ import annotations

from collections.abc import Sequence

from knee.lab import programs
from knee.lab.command import CONNECTIONS_SPARE, Command, addressed_to, life, port_zero
from knee.lab.deploy.stores import StoresDeployment, keys
from knee.lab.hosts import Process
from knee.spec import Configuration, Middleware


def middleware(process: str, tier: Middleware, free_address: str, servers: Sequence[str], clients: int) -> Command:
    """A middleware on a port of its own choice, in front of the stores at these addresses."""
    mode = ["--pipelined"] if tier.pipelined else ["--workers", str(tier.workers)]
    cache = {"--cache-mb": tier.cache_mb, "--cache-ms": tier.cache_ms} if tier.cache_mb else {}
    switches = {"--batch-max": tier.batch_max, **cache}
    argv = [
        str(programs.find("knee-proxy")),
        *("--listen", port_zero(free_address)),
        *addressed_to(servers),
        *mode,
        *("--threads", str(tier.threads), "--multiget", tier.multiget),
        *(word for flag, value in switches.items() if value is not None for word in (flag, str(value))),
        *("--connections-max", str(clients + CONNECTIONS_SPARE)),
        *life(),
    ]
    return Command(process, "middleware", tuple(argv))


def requests(configuration: Configuration) -> list[str]:
    """Flags of a load host for the requests of its clients."""
    workload = configuration.workload
    pipeline = [] if workload.pipeline is None else ["--pipeline", str(workload.pipeline)]
    own = ["--set-get", workload.set_get, "--multiget", str(workload.multiget), *pipeline]
    return [*own, *keys(configuration), "--key-choice", workload.key_choice]


class MemcachedDeployment(StoresDeployment):
    """The processes of a run whose clients speak the memcached protocol."""

    def _requests(self, index: int, configuration: Configuration) -> list[str]:
        return requests(configuration)

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        processes, addresses = self._start_stores(configuration)
        self._populate(configuration, addresses)
        middlewares, middleware_addresses = self._start_middlewares(configuration, addresses)
        return processes, middlewares, middleware_addresses or addresses

    def _start_middlewares(self, configuration: Configuration, servers: list[str]) -> tuple[list[Process], list[str]]:
        tier = configuration.system.middleware
        if tier is None:
            return [], []
        if tier.address is not None:
            return [], list(tier.address)
        clients = configuration.clients
        return self._start_tier(
            "middleware", tier.hosts, lambda name, address: middleware(name, tier, address, servers, clients)
        )
