"""The dashboard's files: open to everybody, with the headers that keep other code out."""

import aiohttp
import pytest
from aiohttp import web

import kactl
from kactl.admin import Open, application, dashboard_files
from tests.admin.conftest import Served, served

pytestmark = pytest.mark.anyio


async def test_page_needs_no_token_and_data_does(shared: Served) -> None:
    async with aiohttp.ClientSession() as stranger:
        async with stranger.get(f"{shared.url}/") as page:
            text = await page.text()
            headers = page.headers
        async with stranger.get(f"{shared.url}/v1/brokers") as data:
            status = data.status

    assert (page.status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert 'src="dashboard/main.js"' in text
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert status == 401


@pytest.mark.parametrize("name", sorted(dashboard_files.files()))
async def test_every_file_is_served(shared: Served, name: str) -> None:
    if name == dashboard_files.INDEX:
        return
    answer = await shared.get(f"/dashboard/{name}")

    assert answer.status == 200
    assert answer.body == dashboard_files.files()[name].content


async def test_frame_of_reports_may_style_itself_and_nothing_else(shared: Served) -> None:
    answer = await shared.get(f"/dashboard/{dashboard_files.FRAME}")

    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; style-src 'unsafe-inline'; sandbox allow-same-origin;" in policy
    assert "script-src" not in policy
    assert "frame-ancestors 'self'" in policy


async def test_unchanged_file_is_not_sent_again(shared: Served) -> None:
    first = await shared.get("/dashboard/main.js")
    again = await shared.get("/dashboard/main.js", headers={"If-None-Match": first.headers["ETag"]})

    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/dashboard/none.js", "/dashboard/..%2fserver.py", "/dashboard/index.html"])
async def test_other_files_are_not_served(shared: Served, path: str) -> None:
    answer = await shared.get(path)

    assert answer.status == 404
    assert answer.json()["title"] in ("No such file", "No such route")


async def test_dashboard_can_be_turned_off() -> None:
    async with served(settings={"api.dashboard": False}) as server:
        assert (await server.get("/")).status == 404
        async with aiohttp.ClientSession() as stranger, stranger.get(f"{server.url}/") as page:
            assert page.status == 401


async def test_mounted_dashboard_refers_to_files_below_its_prefix(free_tcp_port: int) -> None:
    async with kactl.Controller(node_id=0) as controller:
        host = web.Application()
        host.add_subapp("/kactl", application(controller, access=Open(), prefix="/kactl"))
        runner = web.AppRunner(host)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", free_tcp_port).start()
        url = f"http://127.0.0.1:{free_tcp_port}/kactl"
        async with aiohttp.ClientSession() as http:
            async with http.get(f"{url}/") as page:
                assert page.status == 200
                assert '"/dashboard' not in await page.text()
            async with http.get(f"{url}/dashboard/main.js") as script:
                assert script.status == 200
        await runner.cleanup()
