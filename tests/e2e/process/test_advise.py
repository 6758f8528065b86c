"""The hit rate that more memory would bring: over gRPC, as JSON, as a metric and by pagodactl."""

import json
import subprocess

import grpc
import pytest
from pagoda_client import Client, call_status, reason_of
from pagoda_daemon import CALL_SECONDS, PAGODAD
from pagoda.v1 import admin_pb2

BLOCKS = 64
PROMPTS = 24
PROMPT_BLOCKS = 4  # A block has four tokens.


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """Has served 24 prompts of 4 blocks and a tail in turn, ten times, with memory for half of
    them. LRU finds nothing, and would find almost everything in twice the memory."""
    from pagoda_daemon import Daemon
    sections = {"server": {"http_address": "127.0.0.1:0"}, "cache": {"primary": BLOCKS, "eviction_policy": "lru"}}
    with Daemon(tmp_path_factory.mktemp("advise"), **sections) as running:
        with Client(running.connect(), "engine") as client:
            for turn in range(10 * PROMPTS):
                first = 100 * (turn % PROMPTS)
                client.cache(turn + 1, [*range(first, first + 4 * PROMPT_BLOCKS), 7])
        yield running


def curve(daemon, *factors):
    request = admin_pb2.GetHitRateCurveRequest(capacity_factors=factors)
    (window,) = daemon.admin.GetHitRateCurve(request, timeout=CALL_SECONDS).windows
    return window


def test_the_curve_rises_where_everything_fits(daemon):
    window = curve(daemon, 1, 1.5, 2.2, 100)
    assert window.unavailable == ""
    assert (window.capacity_blocks, window.sampled_share, window.observed_requests) == (BLOCKS, 1, 10 * PROMPTS)
    assert window.capacity_bytes == BLOCKS * daemon.status().windows[0].tiers[0].block_bytes
    assert window.lookup_tokens_per_hour > 0
    now, more, all_fit, most = window.points
    assert (now.hit_rate, now.error) == (window.hit_rate, 0) and now.hit_rate < 0.05
    assert more.hit_rate < 0.3 and all_fit.hit_rate > 0.8
    assert (most.capacity_factor, most.hit_rate) == (16, all_fit.hit_rate)
    assert 0 < all_fit.error < 0.2
    assert 1.8 < window.known_factor < 2.1


def test_without_factors_there_are_four_for_each_doubling(daemon):
    factors = [point.capacity_factor for point in curve(daemon).points]
    assert len(factors) == 25 and factors[0] == 0.25 and factors[8] == 1 and factors[-1] == 16


@pytest.mark.parametrize("factors, reason", [([0], "INVALID_ARGUMENT"), ([-1], "INVALID_ARGUMENT"), ([float("nan")], "INVALID_ARGUMENT"),
                                             ([float("inf")], "INVALID_ARGUMENT"), ([1] * 65, "INVALID_COUNT")])
def test_factors_are_checked(daemon, factors, reason):
    with pytest.raises(grpc.RpcError) as refused:
        curve(daemon, *factors)
    assert reason_of(call_status(refused.value)) == reason


def test_the_page_and_the_metrics_say_the_same(daemon):
    window = curve(daemon, 0.5, 1, 2, 4, 8)
    (said,) = daemon.told("hit_rate_curve", admin_pb2.GetHitRateCurveResponse()).windows
    assert said.unavailable == "" and said.observed_requests == window.observed_requests
    for point, truth in zip(said.points, window.points, strict=True):
        assert (point.capacity_factor, point.capacity_blocks) == (truth.capacity_factor, truth.capacity_blocks)
        assert point.hit_rate == pytest.approx(truth.hit_rate) and point.error == pytest.approx(truth.error)
    metrics = daemon.http("/metrics")[1]
    for factor, truth in zip(("0.5", "1", "2", "4", "8"), window.points, strict=True):
        (line,) = [line for line in metrics.splitlines()
                   if line.startswith("pagoda_predicted_hit_rate{") and f'capacity="{factor}"' in line]
        assert float(line.split()[-1]) == pytest.approx(truth.hit_rate)


def test_pagodactl_advises_in_sentences(daemon):
    def advise(*arguments):
        command = [PAGODAD.with_name("pagodactl"), "--endpoint", daemon.grpc_address, "advise", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=CALL_SECONDS).stdout

    text = advise()
    assert f"window full: {BLOCKS} blocks" in text
    assert "with 2x the memory (2x in all) the hit rate would be" in text and "saving" in text
    (window,) = json.loads(advise("--host-memory", "3x", "-o", "json"))["windows"]
    answer = window["points"][-1]
    assert answer["capacity_factor"] == 3 and answer["hit_rate"] > max(0.8, window["hit_rate"])


def test_the_default_policy_is_estimated_by_what_it_evicts(start_daemon):
    """Twelve prompts come again and again, with a new prompt between each two. LRU finds none of
    them in this memory, so by its order half the memory would hit as often as today's. The default
    policy learns to keep them, and has fewer hits in half the memory."""
    daemon = start_daemon(server={"http_address": "127.0.0.1:0"}, cache={"primary": BLOCKS})
    requests = 960
    with Client(daemon.connect(), "engine") as client:
        for turn in range(requests):
            first = 100 * (turn // 2 % (PROMPTS // 2)) if turn % 2 else 100 * (PROMPTS + turn)
            client.cache(turn + 1, [*range(first, first + 4 * PROMPT_BLOCKS), 7])
    command = [PAGODAD.with_name("pagodactl"), "--endpoint", daemon.grpc_address, "advise", "-o", "json"]
    (window,) = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=CALL_SECONDS).stdout)["windows"]
    assert window["unavailable"] == "" and window["observed_requests"] == str(requests)
    rates = {point["capacity_factor"]: point["hit_rate"] for point in window["points"]}
    assert rates[1] == window["hit_rate"] > 0.05
    assert rates[0.5] < rates[1] / 2
    # All that comes again fits: every second request, but for the first ones.
    assert rates[1] < rates[2] and 0.4 < rates[2] <= 0.5
    assert all(0 <= point["error"] < 0.2 for point in window["points"])

    lines = [line for line in daemon.http("/metrics")[1].splitlines() if line.startswith("pagoda_predicted_hit_rate{")]
    assert len(lines) == 5
    for factor in (0.5, 1, 2, 4, 8):
        (line,) = [line for line in lines if f'capacity="{factor}"' in line]
        assert float(line.split()[-1]) == pytest.approx(rates[factor])
