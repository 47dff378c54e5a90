"""The tables of the experiment file, as frozen models: fields, units, limits, defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knee.errors import SpecError

Level = int | float | str | bool
"""One value of a factor."""

TIERS = ("load", "middleware", "store")

OF_SYSTEM = ("command", "ready", "watch")
"""Keys of the system itself, not of a tier."""

CLIENTS = "load.clients"
"""The factor that sets the number of clients."""

AUTO = "auto"
"""In place of the clients' levels: short runs choose them."""

OPERATIONS = ("read", "insert", "update", "put", "append", "delete", "scan", "atomic_scan", "bulk_put")
"""The operations of a mix of protocol "kv"."""

LOOPS = {
    "send-list-read-remove": ("send", "list_queues", "read_all", "remove"),
    "list-receive-send": ("list_queues", "remove", "send"),
}
"""The requests that each client of protocol "queue" repeats, by the loop's name."""

_SHARE = rf"({'|'.join(OPERATIONS)}):[0-9]{{1,6}}"
_Hosts = Annotated[int, Field(ge=1, le=256)]
_Threads = Annotated[int, Field(ge=1, le=1024)]
_Link = Annotated[float, Field(ge=0.1, le=1_000_000)]
_Delay = Annotated[float, Field(ge=0, le=10_000)]
ESCAPED = r"%(2[0147-9ABD-Fabd-f]|3[0-9]|4[1-9A-Fa-f]|[5-9A-Fa-f][0-9A-Fa-f])"
"""An escaped character of a folder's name: no control character, and none of "#%&,:;<=>?@, which could begin another
part of a URL."""
_Address = Annotated[str, Field(pattern=rf"^(\[[0-9A-Fa-f:.]+\]|([\w.-]|{ESCAPED})+):[0-9]{{1,5}}$")]
"""The name of a host, or the directory of a Unix socket as a URL has it: no user, and no other part of a URL."""
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
_Addresses = Annotated[tuple[_Address, ...], Field(strict=False, min_length=1)]
_Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Experiment(Table):
    """The name of the experiment, and the question that it answers.

    name      of the experiment and of the folder of its runs
    question  printed with the answers
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    question: str = ""


class Load(Table):
    """The load hosts: one client process each.

    hosts     number of load hosts
    kind      the load generator: knee-load, or one of Debian's. pgbench calls a PostgreSQL without a middleware, wrk
              calls an nginx, and redis-benchmark calls a Redis
    clients   virtual clients over all load hosts, dealt evenly; required, here or as a factor. "auto" in place of a
              number or of levels: short runs choose levels that enclose the knee
    threads   OS threads of each client process
    script    SQL file that pgbench repeats in place of the requests of `workload.level`
    command   any load generator in place of `kind`: its command, with {clients}, {seconds} and {output} as in
              `knee find`. A short run shows how many {requests} take about {seconds}.
              {url}, {host} and {port} are those of a `store` that Knee starts: an nginx, a Redis or a PostgreSQL
    """

    hosts: _Hosts = 1
    kind: Literal["knee-load", "pgbench", "wrk", "redis-benchmark"] = "knee-load"
    threads: _Threads = 1
    clients: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    script: str | None = None
    command: str | None = None
    link_mbit: _Link | None = None
    receive_mbit: _Link | None = None
    delay_ms: _Delay = 0.0

    @property
    def is_foreign(self) -> bool:
        """Whether Knee reads what a command, wrk, redis-benchmark, or pgbench with a script prints."""
        return not (self.command is None and self.script is None and self.kind in ("knee-load", "pgbench"))


class Middleware(Table):
    """The middlewares between clients and stores.

    hosts     number of middlewares
    threads   OS threads of each middleware
    workers   worker slots of each, with one request in flight per slot; required unless `pipelined`, or over NBD
    address   middlewares that already run elsewhere; the lab starts none

    Of the memcached protocol:

    pipelined each thread has one pipelined connection to each store, instead of worker slots
    multiget  whether a multi-get goes whole to one store, or is sharded over all stores
    batch_max largest number of requests in one write to a store, if `pipelined`; by default all that arrive together
    cache_mb  memory of a near cache, from which a middleware answers gets; 0 is none
    cache_ms  lifetime of a value in the near cache; by default a second

    Of protocol "queue":

    connections number of database connections of all middlewares, dealt evenly; by default one for each worker slot
    combine     largest number of waiting requests that go to the database as one call

    Of protocol "nbd", whose middlewares are knee-space's managers, without worker slots:

    layout    how an address is translated: by base and length, or by a shift, if `memory_mb` is a power of two
    """

    hosts: _Hosts = 1
    threads: _Threads = 1
    workers: Annotated[int, Field(ge=1, le=65_536)] | None = None
    pipelined: bool = False
    multiget: Literal["whole", "sharded"] = "whole"
    batch_max: Annotated[int, Field(ge=1, le=65_536)] | None = None
    cache_mb: Annotated[int, Field(ge=0, le=1_048_576)] = 0
    cache_ms: Annotated[int, Field(ge=1, le=3_600_000)] | None = None
    connections: Annotated[int, Field(ge=1, le=10_000)] | None = None
    combine: Annotated[int, Field(ge=1, le=1_000)] = 1
    layout: Literal["length", "shift"] = "length"
    link_mbit: _Link | None = None
    receive_mbit: _Link | None = None
    delay_ms: _Delay = 0.0
    address: _Addresses | None = None


class Store(Table):
    """The stores; each holds every key. With protocol "nbd", each holds its part of the address space.

    hosts       number of stores
    threads     OS threads of each store
    kind        the server. knee-kv, or Debian's memcached; with protocol "queue" Debian's PostgreSQL, a middleware's
                SQLite file, or none, to measure the middleware alone; with protocol "nbd" knee-space; with another load
                generator nginx (whose worker processes are its threads), Redis or PostgreSQL
    memory_mb   the limit of a cache, PostgreSQL's shared buffers, or a part of an address space
    address     stores that already run elsewhere; the lab starts none
    user        of a PostgreSQL at `address`; its password comes from libpq's files and variables, never from this file
    database    of a PostgreSQL at `address`; the lab makes the schema knee_queue in it for each run, and removes it
    reset       drop a schema knee_queue that is already in `database`; otherwise Knee refuses the run
    durability  when a write is on disk; "memory": never, the data end with the process
    dally_us    before a sync, a commit waits up to this time for other commits
    batch_max   largest number of commits in one sync; with "all", a sync takes every waiting commit
    cpus        whole processors that a PostgreSQL is pinned to
    indexes     of a PostgreSQL's messages: the needed ones, none, or the needed ones and one on the time of arrival
    consistency whether versions order all writes, or only the writes of each key
    history_s   retention of old versions: seconds, or "all"
    trace       write a line for every request in the store's log

    With `durability`, `consistency` or `history_s`, or over gRPC, knee-kv keeps versions; otherwise it is a cache.
    """

    hosts: _Hosts = 1
    threads: _Threads = 1
    kind: Literal["knee-kv", "memcached", "postgresql", "sqlite", "null", "knee-space", "nginx", "redis"] = "knee-kv"
    memory_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 1024
    durability: Annotated[str, Field(pattern=r"^(memory|always|none|interval:[1-9][0-9]{0,8})$")] | None = None
    consistency: Literal["linearizable", "sequential"] | None = None
    history_s: Annotated[int, Field(ge=0, le=1_000_000_000)] | Literal["all"] | None = None
    trace: bool = False
    dally_us: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    batch_max: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["all"] = "all"
    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    indexes: Literal["needed", "none", "arrival"] = "needed"
    user: _Name = "knee"
    database: _Name = "postgres"
    reset: bool = False
    link_mbit: _Link | None = None
    receive_mbit: _Link | None = None
    delay_ms: _Delay = 0.0
    address: _Addresses | None = None

    @property
    def on_disk(self) -> bool:
        """Whether the store keeps its data in a directory."""
        if self.kind == "postgresql":
            return self.address is None
        return self.durability not in (None, "memory")


class System(Table):
    """The tiers, from the client inwards. Each tier has, for the links of its emulated hosts:

    link_mbit     rate each way, in Mbit/s of Ethernet frames; by default unlimited
    receive_mbit  rate towards the host, if it differs from `link_mbit`: clouds often limit only the sending
    delay_ms      delay one way

    With `load.command`, the system may be a command, too:

    command       starts the system before each run; Knee stops it afterwards. Without it, the system already runs
    ready         URL or HOST:PORT of the started system; by default the URL in `load.command`
    watch         parts of the system whose processor times become stations, as `--watch` of `knee find`; by default
                  the started system, or the processes that listen at the address in `load.command`
    """

    command: str | None = None
    ready: str | None = None
    watch: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None = None
    load: Load
    middleware: Middleware | None = None
    store: Store | None = None


class Graph(Table):
    """A synthetic follower graph that every store is loaded with: keys are users, values their followers.

    users     all users; a user without followers has no key
    largest   followers of the most followed user
    exponent  a user has k followers with a probability proportional to k to the power of minus this; by default
              Twitter's. `largest` fixes the longest list, so smaller exponents shorten the others
    """

    users: Annotated[int, Field(ge=2, le=1_000_000_000)]
    largest: Annotated[int, Field(ge=1, le=1_000_000_000)]
    exponent: Annotated[float, Field(gt=1, le=10)] | None = None


class Workload(Table):
    """The requests of the clients.

    protocol  of the requests: a cache's, that of a store that keeps versions ("kv"), a message queue's, or a disk's
    think_ms  mean think time of a closed loop
    think     distribution of the think times
    rate      requests per second over all load hosts; makes the loop an open one
    arrivals  distribution of the times between the requests of an open loop
    value_bytes size of the values, or its distribution
    keys      number of different keys
    key_choice distribution of the requested keys
    populated share of the keys that are set before each point
    ttl_s     seconds after which stored values expire, populated ones too; by default never
    verify    clients check answers, and count wrong ones

    Of the memcached protocol:

    set_get   S:G, S sets for every G retrievals
    multiget  keys per retrieval
    pipeline  requests in flight per client; by default one in a closed loop, and knee-load's limit in an open loop

    Of protocol "kv", the operations of a store that keeps versions:

    interface   the interface of the store that clients use
    mix         operations and their weights
    own_keys    every client has its own part of `keys`; otherwise all clients share all keys
    key_draws   length of the sequence of drawn keys, which every client repeats
    scan_keys   keys of a scan
    bulk_keys   keys of a bulk put
    large_bytes reads of at least this many bytes count as a separate type
    graph       the graph that stores hold instead of populated keys

    Of protocol "queue", whose clients pass messages to each other:

    loop        the requests that each client repeats, one of each type in turn
    characters  of a message
    receivers   a client sends to itself, or to any client
    backlog     messages in the queues before each point; `receivers` determines their receivers. Middlewares that run
                elsewhere also keep the messages of earlier points
    level       pgbench's requests: 0 sends; 1 also lists queues; 2 also reads and removes, so no queue grows; 3 draws
                one of two, counted separately: sending ten messages to one queue, or removing its first message; 4
                sends and removes

    Of protocol "nbd", whose clients read and write whole blocks of an address space, drawn uniformly:

    block_bytes of each request
    writes      share of the requests that write

    Of a PostgreSQL with `load.script` or `load.command`, before each run:

    scale       `pgbench -i` makes its tables in this scale; by default it makes none
    prepare     SQL file that psql executes
    """

    protocol: Literal["memcached", "kv", "queue", "nbd"] = "memcached"
    interface: Literal["grpc", "memcached"] = "grpc"
    mix: Annotated[str, Field(pattern=rf"^{_SHARE}(,{_SHARE})*$")] = "read:90,put:10"
    own_keys: bool = False
    key_draws: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    scan_keys: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    bulk_keys: Annotated[int, Field(ge=1, le=1000)] = 10
    large_bytes: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    graph: Graph | None = None
    loop: Literal["send-list-read-remove", "list-receive-send"] = "send-list-read-remove"
    characters: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    receivers: Literal["self", "any"] = "any"
    backlog: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    level: Annotated[int, Field(ge=0, le=4)] = 2
    block_bytes: Annotated[int, Field(ge=1, le=1_048_576)] = 4096
    writes: _Share = 0.0
    scale: Annotated[int, Field(ge=1, le=100_000)] | None = None
    prepare: str | None = None
    set_get: Annotated[str, Field(pattern=r"^[0-9]{1,6}:[0-9]{1,6}$")] = "1:9"
    multiget: Annotated[int, Field(ge=1, le=1000)] = 1
    value_bytes: (
        Annotated[int, Field(ge=1, le=1_000_000)]
        | Annotated[str, Field(pattern=r"^(uniform:[0-9]+:[0-9]+|exponential:[0-9.]+)$")]
    ) = 4096
    keys: Annotated[int, Field(ge=1, le=1_000_000_000)] = 10_000
    populated: Annotated[float, Field(ge=0, le=1)] = 0.99
    ttl_s: Annotated[int, Field(ge=1, le=2_592_000)] | None = None
    key_choice: Annotated[str, Field(pattern=r"^(sequential|uniform|zipf:[0-9.]+|hotset:[0-9.]+:[0-9.]+)$")] = "uniform"
    think_ms: Annotated[float, Field(ge=0, le=3_600_000)] = 0.0
    think: Literal["constant", "exponential"] = "constant"
    rate: Annotated[float, Field(gt=0, le=1e9)] | None = None
    arrivals: Literal["constant", "poisson"] = "poisson"
    pipeline: Annotated[int, Field(ge=1, le=1024)] | None = None
    verify: bool = False

    @property
    def operations(self) -> list[tuple[str, int]]:
        """The mix: operations and their weights."""
        return [(name, int(weight)) for name, _, weight in (part.partition(":") for part in self.mix.split(","))]

    @property
    def key_count(self) -> int:
        """The number of keys; by default the users of a graph, if there is one."""
        return self.keys if self.graph is None or "keys" in self.model_fields_set else self.graph.users


class Measure(Table):
    """The length and the number of the measurements.

    hosts  all hosts are this machine, or each is emulated on it, with a network namespace and a link of its own
    repetitions  of each point
    seconds      of each measurement, with warm-up and cool-down
    order  of all measurements: random, or each repetition in the order of the points
    ramp   the levels of load.clients follow each other within one run, `seconds` each: clients join, and the servers
           stay
    warmup_s     left out at the beginning of each measurement; run folders keep it
    cooldown_s   left out at the end
    seed   of the run order and of the clients; by default drawn, and recorded
    """

    hosts: Literal["local", "emulated"] = "local"
    repetitions: Annotated[int, Field(ge=1, le=100)] = 3
    seconds: Annotated[int, Field(ge=1, le=86_400)] = 70
    warmup_s: Annotated[int, Field(ge=0, le=86_400)] = 5
    cooldown_s: Annotated[int, Field(ge=0, le=86_400)] = 5
    order: Literal["random", "given"] = "random"
    ramp: bool = False
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class Thresholds(Table):
    """The limits of every point. A point misses a limit if the whole confidence interval of its mean lies beyond it.

    throughput       least answered requests per second, without failed ones
    completed_share  least share of an open loop's due requests that end in time
    response_ms      longest mean response time in the clients' view
    p50_ms           longest median response time
    p90_ms           longest 90th percentile of the response time
    p95_ms           longest 95th percentile of the response time
    p99_ms           longest 99th percentile of the response time
    p999_ms          longest 99.9th percentile of the response time
    queueing_ms      longest mean wait in the middlewares
    service_ms       longest mean service time of the middlewares
    error_share      largest share of failed requests
    """

    throughput: _Limit | None = None
    completed_share: _Share | None = None
    response_ms: _Limit | None = None
    p50_ms: _Limit | None = None
    p90_ms: _Limit | None = None
    p95_ms: _Limit | None = None
    p99_ms: _Limit | None = None
    p999_ms: _Limit | None = None
    queueing_ms: _Limit | None = None
    service_ms: _Limit | None = None
    error_share: _Share | None = None

    @property
    def given(self) -> dict[str, float]:
        """The limits by name."""
        return self.model_dump(exclude_none=True)


class Configuration(Table):
    """The system and the workload of one point, with a level for every factor."""

    system: System
    workload: Workload

    @property
    def clients(self) -> int:
        """Virtual clients over all load hosts."""
        return self.system.load.clients or 0

    @property
    def key_count(self) -> int:
        """The number of keys; at least one for each client with own_keys."""
        keys = self.workload.key_count
        return max(keys, self.clients) if self.workload.own_keys else keys

    @property
    def middlewares(self) -> int:
        """Number of middlewares; 0 without this tier."""
        return _size(self.system.middleware)

    @property
    def stores(self) -> int:
        """Number of stores; 0 if they are unnamed, behind middlewares that run elsewhere."""
        return _size(self.system.store)


class Spec(Table):
    """A whole experiment, valid at every point of its grid.

    is_auto  short runs have yet to choose the levels of the clients; the fewest clients stand for them
    """

    experiment: Experiment
    base: Configuration
    factors: dict[str, tuple[Level, ...]]
    measure: Measure
    thresholds: Thresholds = Thresholds()
    overrides: dict[str, Any]
    is_auto: bool = False

    def at(self, levels: Mapping[str, Level]) -> Configuration:
        """The configuration in which the named factors have these levels.

        Raises SpecError for an invalid combination.
        """
        document = self.base.model_dump(exclude_unset=True)
        for name, level in levels.items():
            put(document, field_path(name), level)
        try:
            return Configuration.model_validate(document)
        except ValidationError as error:
            raise SpecError(f"{dict(levels)}: {error}") from error

    @property
    def wants_links(self) -> bool:
        """Whether any tier asks for the rate or the delay of a link."""
        system = self.base.system
        tiers = (system.load, system.middleware, system.store)
        return any(
            tier is not None and (tier.link_mbit is not None or tier.receive_mbit is not None or tier.delay_ms)
            for tier in tiers
        ) or any(name.endswith((".link_mbit", ".receive_mbit", ".delay_ms")) for name in self.factors)


def _size(tier: Middleware | Store | None) -> int:
    if tier is None:
        return 0
    return tier.hosts if tier.address is None else len(tier.address)


def field_path(name: str) -> tuple[str, ...]:
    """The path of a factor's dotted name in the document: `load.clients` is `system.load.clients`."""
    parts = tuple(name.split("."))
    return ("system", *parts) if parts[0] in TIERS else parts


def settings(configuration: Configuration, *, given: bool = False) -> dict[str, Any]:
    """Every setting of a point by its dotted name, or only the `given` ones; None for a missing one."""
    found: dict[str, Any] = {}

    def flatten(table: Mapping[str, Any], prefix: str) -> None:
        for name, value in table.items():
            if isinstance(value, Mapping):
                flatten(value, f"{prefix}{name}.")
            else:
                found[f"{prefix}{name}"] = value

    for part in (configuration.system, configuration.workload):
        flatten(part.model_dump(exclude_unset=given), "workload." if isinstance(part, Workload) else "")
    return {_name(name): value for name, value in found.items() if name not in TIERS}


def _name(setting: str) -> str:
    return f"system.{setting}" if setting in OF_SYSTEM else setting


_NO_FACTORS = ("address", "user", "database", "reset", "protocol", "graph")


def factor_names() -> list[str]:
    """Every name that `[factors]` may contain."""
    names = ["system.command"]
    for prefix, table in (("load", Load), ("middleware", Middleware), ("store", Store), ("workload", Workload)):
        names += [f"{prefix}.{field}" for field in table.model_fields if field not in _NO_FACTORS]
    return names


def names_of_one_value() -> list[str]:
    """Every name that has one value for all points."""
    names = ["middleware.address", "store.address", "store.user", "store.database", "store.reset"]
    names += ["workload.protocol", "system.ready", "system.watch"]
    names += [f"workload.graph.{field}" for field in Graph.model_fields]
    names += [f"experiment.{field}" for field in Experiment.model_fields]
    names += [f"thresholds.{field}" for field in Thresholds.model_fields]
    return names + [f"measure.{field}" for field in Measure.model_fields]


def put(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set the field at a path, and make missing tables above it."""
    for part in path[:-1]:
        document = document.setdefault(part, {})
    document[path[-1]] = value
