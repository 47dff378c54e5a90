"""Protocol "kv": commands and deployment of versioned stores, their clients, and graphs."""

from __future__ import annotations

from pathlib import Path

from knee.errors import ProcessError
from knee.lab import programs
from knee.lab.command import Command, life, tied
from knee.lab.deploy.deployment import finished
from knee.lab.deploy.stores import StoresDeployment, keys
from knee.lab.hosts import Process
from knee.spec import Configuration, Graph

GRAPH_TIMEOUT_S = 900
"""Seconds to make or load a graph: a hundred million edges take minutes."""


def graph(process: str, wanted: Graph, seed: int, file: Path) -> Command:
    """Writes a graph as a file that stores load."""
    argv = [
        *tied(),
        str(programs.find("knee-kv")),
        *("graph", "--users", str(wanted.users), "--largest", str(wanted.largest)),
        *([] if wanted.exponent is None else ["--exponent", str(wanted.exponent)]),
        *("--seed", str(seed), str(file)),
    ]
    return Command(process, "graph", tuple(argv), makes=file)


def init(process: str, server: str, graph: Path) -> Command:
    """A client that makes a store load a file, and exits."""
    argv = [str(programs.find("knee-load")), "kv", "--server", server, "--init", graph.name, *life()]
    return Command(process, "init", tuple(argv))


def requests(index: int, configuration: Configuration, seed: int) -> list[str]:
    """Flags of a load host for the requests of its clients."""
    workload, hosts = configuration.workload, configuration.system.load.hosts
    asked = {name for name, weight in workload.operations if weight}
    argv = ["--mix", workload.mix]
    argv += ["--own-keys"] if workload.own_keys else []
    # Each process numbers its clients from zero, so each gets its own part of the keys.
    argv += ["--part", f"{index + 1}/{hosts}"] if workload.own_keys and hosts > 1 else []
    # The clients of all hosts share one sequence of draws.
    draws = ["--key-draws", str(workload.key_draws), "--draws-seed", str(seed)]
    argv += [] if workload.key_draws is None else draws
    argv += ["--scan-keys", str(workload.scan_keys)] if asked & {"scan", "atomic_scan"} else []
    argv += ["--bulk-keys", str(workload.bulk_keys)] if "bulk_put" in asked else []
    argv += [] if workload.large_bytes is None else ["--large-bytes", str(workload.large_bytes)]
    return [*argv, *keys(configuration), "--key-choice", workload.key_choice]


class KvDeployment(StoresDeployment):
    """The processes of a run with versioned stores."""

    def _requests(self, index: int, configuration: Configuration) -> list[str]:
        return requests(index, configuration, self._seed)

    def _start_servers(self, configuration: Configuration) -> tuple[list[Process], list[Process], list[str]]:
        wanted, tier = configuration.workload.graph, configuration.system.store
        if wanted is not None and tier is not None:
            self._make_graph(wanted, tier.hosts)
        processes, addresses = self._start_stores(configuration)
        if wanted is None:
            self._populate(configuration, addresses)
        else:
            self._load_graph(addresses)
        return processes, [], addresses

    def _make_graph(self, wanted: Graph, stores: int) -> None:
        """Make the graph on the machine of each store, once for all runs. The graph of every machine is the same."""
        assert self._room is not None, "a graph lies in the scratch directory"
        for index in range(stores):
            made = graph(f"graph-{index}", wanted, self._first_seed, self._room.graph_path)
            command = self._prepared(made, at=f"store-{index}")
            if self._host.has_made(command):
                self._started.append(command)
            else:
                finished(self._start(command, at=command.at), GRAPH_TIMEOUT_S)

    def _load_graph(self, addresses: list[str]) -> None:
        """Load the graph into one store after the other, because the stores share a disk."""
        assert self._room is not None, "a graph lies in the scratch directory"
        for index, address in enumerate(addresses):
            process = self._start(init(f"init-{index}", address, self._room.graph_path), at=f"store-{index}")
            finished(process, GRAPH_TIMEOUT_S)
            if process.command.process not in self._summaries:
                raise ProcessError(f"{process.command.process}: printed no summary of its load: {process.describe()}")
