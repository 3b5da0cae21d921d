"""What is counted of requests: routes and statuses, and nothing that a caller chooses."""

from tests.faults.endpoint import GATE, Site, batch
from tests.faults.site import wait_until

REQUESTS, DURATIONS = "streamer_http_requests_total", "streamer_http_request_duration_seconds_count"


def test_requests_are_counted_by_route_and_status(sqlite_site: Site) -> None:
    endpoint = sqlite_site.serve()
    before = endpoint.metrics()
    routes = {name.partition('"')[2].partition('"')[0] for name in before if name.startswith(DURATIONS)}
    of = "/v1/gates/{gate}"
    assert {
        of, f"{of}/decisions", f"{of}/decisions/{{batch_id}}", f"{of}/labels", "/openapi.json",
        "none",
    } <= routes  # fmt: skip
    counted = {name: value for name, value in before.items() if name.startswith(REQUESTS)}
    assert set(counted.values()) == {0}
    assert len(counted) == 4 * len(routes)

    for name in ("b-1", "b-1", "b-2"):
        endpoint.ask(batch(name))
    endpoint.ask(batch("b-1", prompt="Who?"))
    endpoint.ask(batch("b-1"), gate="nobody")
    endpoint.client.get(f"/v1/gates/{GATE}/decisions/b-1")
    endpoint.client.get(f"/v1/gates/{GATE}/decisions/secret-batch")
    endpoint.client.get("/v1/secret-address")
    endpoint.client.delete(f"/v1/gates/{GATE}")
    # A request is counted when its answer is sent to the end, which its sender may see first.
    last = f'{REQUESTS}{{route="{of}",status="405"}}'
    wait_until(lambda: endpoint.metrics().get(last) == 1, "the last one is counted")
    after = endpoint.metrics()
    assert {name: value for name, value in after.items() if name.startswith(REQUESTS) and value} == {
        f'{REQUESTS}{{route="{route}",status="{status}"}}': count
        for route, status, count in (
            (f"{of}/decisions", 200, 3),
            (f"{of}/decisions", 409, 1),
            (f"{of}/decisions", 404, 1),
            (f"{of}/decisions/{{batch_id}}", 200, 1),
            (f"{of}/decisions/{{batch_id}}", 404, 1),
            ("none", 404, 1),
            (of, 405, 1),
        )
    }
    assert after[f'{DURATIONS}{{route="{of}/decisions"}}'] == 5
    assert not [name for name in after if "secret" in name]
