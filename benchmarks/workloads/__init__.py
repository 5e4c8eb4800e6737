"""The questions a run answers, one file each; the order here is the order of the report."""

from benchmarks.trial import Workload
from benchmarks.workloads import (
    ack_cost,
    consume,
    delays,
    end_to_end,
    http,
    http_consume,
    latency,
    log_size,
    memory,
    partitions,
    publish,
    read,
    rebalance,
    restart,
    schema,
    tx,
)

WORKLOADS: tuple[Workload, ...] = (
    publish.WORKLOAD,
    read.WORKLOAD,
    consume.WORKLOAD,
    http.WORKLOAD,
    http_consume.WORKLOAD,
    latency.WORKLOAD,
    end_to_end.WORKLOAD,
    restart.WORKLOAD,
    memory.WORKLOAD,
    partitions.WORKLOAD,
    log_size.WORKLOAD,
    rebalance.WORKLOAD,
    ack_cost.WORKLOAD,
    delays.WORKLOAD,
    schema.WORKLOAD,
    tx.WORKLOAD,
)
