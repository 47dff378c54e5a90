"""Reads the output of load generators for model servers, by their documented formats. Pure."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from knee.data.foreign.result import Result, loaded

_SHARES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


def vllm(text: str) -> list[Result]:
    """`vllm bench serve --save-result`: a line for each run. A closed loop if only `--max-concurrency` limits it.

    The mean time of whole requests needs `--percentile-metrics e2el`, or a version that lists `latencies`.
    """
    several = text.count('"request_throughput"') > 1
    return [_vllm(loaded(run)) for run in (text.splitlines() if several else [text])]


def _vllm(report: dict[str, Any]) -> Result:
    rate = report["request_rate"]
    # A failed request has no latency. With a rate, requests also wait for one of the clients.
    took = report.get("latencies", [])
    waited = report.get("queue_times") if rate != "inf" else None
    times = [1000 * sum(both) for both in zip(took, waited or [0.0] * len(took), strict=True) if both[0]]
    name = next((name for name in ("e2el_including_client_queue", "e2el") if f"mean_{name}_ms" in report), "e2el")
    # vLLM 0.7 writes no number of failed requests.
    failed = report.get("failed", report["num_prompts"] - report["completed"])
    listed = {share: report.get(f"{share}_{name}_ms") for share in _SHARES} | {"p50": report.get(f"median_{name}_ms")}
    return Result(
        "vllm",
        report["request_throughput"],
        report.get(f"mean_{name}_ms", fmean(times) if times else None),
        clients=report.get("max_concurrency"),
        percentiles_ms={_SHARES[share]: time for share, time in listed.items() if time is not None},
        max_ms=max(times, default=None),
        duration_s=report["duration"],
        requests=report["completed"] + failed,
        errors=failed,
        rate=None if rate == "inf" else rate,
        is_open=rate != "inf",
    )


def guidellm(text: str) -> list[Result]:
    """GuideLLM's benchmarks.json: a result for each strategy. Its response times are in seconds."""
    return [_guidellm(each) for each in loaded(text)["benchmarks"]]


def _guidellm(benchmark: dict[str, Any]) -> Result:
    metrics, strategy = benchmark["metrics"], benchmark["config"]["strategy"]
    # With a rate, version 0.8 also times requests from when they are due.
    latency = metrics.get("request_scheduled_latency") or metrics["request_latency"]
    counts, times = metrics["request_totals"], latency["successful"]
    kind = strategy.get("type_") or strategy["kind"]
    # The strategy `throughput` sends all requests at once.
    is_open = kind not in ("synchronous", "concurrent", "throughput")
    # A client's worker prepares each request, and ends it. An entry without a value is -1.
    around = [
        benchmark.get("scheduler_metrics", {}).get(f"{name}_delay_avg", 0.0)
        for name in ("request_start", "resolve_end")
    ]
    return Result(
        "guidellm",
        metrics["requests_per_second"]["successful"]["mean"],
        1000 * times["mean"],
        clients=1 if kind == "synchronous" else strategy.get("streams"),
        percentiles_ms={_SHARES[name]: 1000 * time for name, time in times["percentiles"].items() if name in _SHARES},
        max_ms=1000 * times["max"],
        duration_s=benchmark["duration"],
        requests=counts["successful"] + counts["errored"],
        errors=counts["errored"],
        rate=strategy.get("rate"),
        is_open=is_open,
        rest_ms=None if is_open else 1000 * sum(max(0.0, each) for each in around),
    )
