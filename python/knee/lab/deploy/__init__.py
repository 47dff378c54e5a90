"""How the processes of a run are started, measured and stopped: a module for each protocol."""

from knee.lab.deploy.deployment import Deployment
from knee.lab.deploy.kv import KvDeployment
from knee.lab.deploy.memcached import MemcachedDeployment
from knee.lab.deploy.pgbench import PgbenchDeployment
from knee.lab.deploy.queue import QueueDeployment
from knee.lab.deploy.space import SpaceDeployment
from knee.spec import Configuration


def deployment_of(configuration: Configuration) -> type[Deployment]:
    if configuration.system.load.kind == "pgbench":
        return PgbenchDeployment
    deployments: dict[str, type[Deployment]] = {
        "memcached": MemcachedDeployment,
        "kv": KvDeployment,
        "queue": QueueDeployment,
        "nbd": SpaceDeployment,
    }
    return deployments[configuration.workload.protocol]


def start_lead_s(configuration: Configuration) -> float:
    """Least number of seconds from the start of the clients to the agreed start, for connecting.

    Clients of a queue also register, which takes a write to the database.
    """
    clients = configuration.clients
    return 1.0 + clients / 100 if configuration.workload.protocol == "queue" else 0.5 + clients / 5000
