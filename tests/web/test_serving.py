"""`proctor serve` as a process: where it listens, how it ends, what it leaves running."""

import contextlib
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import pytest
from calling import Served, serving
from stocked_runs import add_run
from typed import GATED

from databases import query
from proctor.store.writer import this_process
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS


def test_ctrl_c_in_the_servers_terminal_stops_no_batch(serve, proctor, gate_model):
    # A terminal sends Ctrl-C to everything that was started in it.
    server = subprocess.Popen(
        [sys.executable, "-m", "proctor", "serve", "--no-token", "--port", "0", "--json"],
        cwd=proctor.folder,
        env=proctor.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    port = json.loads(server.stdout.readline())["port"]
    run_id = Served(serve.site, port).start(GATED, overrides={"runId": "lives-on"})

    os.killpg(server.pid, signal.SIGINT)

    assert server.wait(timeout=TIME_LIMIT_SECONDS) == 130
    server.stdout.close()
    gate_model.touch()
    assert serve().wait_for(run_id, "completed")["counts"]["success"] == 4


def test_the_command_serves_says_where_and_ends_when_it_is_asked_to(proctor, site):
    with serving(proctor, "--no-token", "--json") as (server, line):
        with Served(site, json.loads(line)["port"]).live() as live:
            live.watch(("runs", ""))
            server.send_signal(signal.SIGTERM)
            # A page that listens does not keep it.
            assert server.wait(timeout=TIME_LIMIT_SECONDS) == 0
        assert "runs continue without the server" in server.stdout.read()


def test_a_port_that_is_taken_is_told_before_anything_starts(proctor, served):
    refused = proctor("serve", "--port", str(served.port))

    assert refused.returncode == 2
    assert f"port {served.port} is already in use" in refused.stderr
    assert "--port 0" in refused.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_beyond_this_machine_needs_a_token(proctor, host):
    refused = proctor("serve", "--host", host, "--no-token", "--port", "0")

    assert refused.returncode == 2
    assert "--no-token" in refused.stderr


def test_what_the_command_prints_lets_a_browser_an_exporter_and_an_aws_client_in(proctor, open_page):
    boto3 = pytest.importorskip("boto3")
    with serving(proctor) as (server, line):
        lines = [line.strip()]
        while not lines[-1].startswith("export AWS_SECRET_ACCESS_KEY"):
            lines.append(server.stdout.readline().strip())
        url, _, token = lines[0].removeprefix("Serving at ").partition("/?token=")
        variables = dict(
            pair.split("=", 1)
            for line in lines
            for pair in shlex.split(line.removeprefix("export "))
            if line.startswith("export ")
        )

        # Whoever has no token is sent to sign in.
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{url}/api/runs", timeout=TIME_LIMIT_SECONDS)
        assert refused.value.code == 401

        page = open_page(lines[0].removeprefix("Serving at "))
        assert page.url == f"{url}/"
        page.wait_for_selector("h1 >> text=Batches")

        header, _, value = variables["OTEL_EXPORTER_OTLP_HEADERS"].partition("=")
        assert value == f"Bearer%20{token}"
        traces = Request(
            f"{variables['OTEL_EXPORTER_OTLP_ENDPOINT']}/v1/traces",
            data=b"{}",
            headers={header: unquote(value), "content-type": "application/json"},
        )
        assert urlopen(traces, timeout=TIME_LIMIT_SECONDS).status == 200

        session = boto3.Session(
            variables["AWS_ACCESS_KEY_ID"],
            variables["AWS_SECRET_ACCESS_KEY"],
            region_name=variables["AWS_DEFAULT_REGION"],
        )
        control = session.client(
            "bedrock-agentcore-control", endpoint_url=variables["AWS_ENDPOINT_URL_BEDROCK_AGENTCORE_CONTROL"]
        )
        assert control.list_evaluators()["evaluators"]


def test_a_token_that_the_user_configured_is_not_printed(proctor):
    proctor.environment["PROCTOR_TOKEN"] = "a-token-of-the-user-alone"
    with serving(proctor) as (server, first):
        server.terminate()
        printed = first + server.stdout.read()

    assert "(token from PROCTOR_TOKEN)" in first
    assert 'AWS_SECRET_ACCESS_KEY="$PROCTOR_TOKEN"' in printed
    assert "a-token-of-the-user-alone" not in printed


def test_a_browser_is_opened_without_the_token_in_its_arguments(proctor):
    browser = proctor.folder / "browser"
    browser.write_text('#!/bin/sh\necho "$@" > arguments.part\nmv arguments.part arguments\n')
    browser.chmod(0o755)
    proctor.environment["BROWSER"] = f"{browser} %s"
    with serving(proctor, "--json", "--open") as (_, line):
        token = json.loads(line)["token"]
        assert eventually((proctor.folder / "arguments").exists)
        arguments = (proctor.folder / "arguments").read_text()

        assert token not in arguments
        file = Path(urlsplit(arguments.strip()).path)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f"/?token={token}" in file.read_text()


def test_a_server_on_all_addresses_says_one_that_a_browser_can_go_to(proctor):
    with serving(proctor, "--host", "0.0.0.0", "--json") as (_, line):
        told = json.loads(line)
        assert told["url"] == f"http://127.0.0.1:{told['port']}"
        assert urlopen(f"{told['url']}/login", timeout=TIME_LIMIT_SECONDS).status == 200


def test_somebody_who_waits_for_a_run_to_stop_does_not_keep_the_server(proctor):
    with proctor.open_store() as store:
        # A run of a process that lives and does not listen: this one.
        add_run(store, "deaf", status="running", owner=this_process())
    server = proctor.start("serve", "--no-token", "--port", "0", "--json")
    url = json.loads(server.stdout.readline())["url"]
    asking = threading.Thread(target=abort, args=(url,), daemon=True)
    asking.start()
    with proctor.open_store() as store:
        eventually(lambda: query(store, 'SELECT "abortRequestedAt" AS "at" FROM "batches"')[0]["at"])

    server.send_signal(signal.SIGTERM)

    assert server.wait(timeout=TIME_LIMIT_SECONDS) == 0
    server.stdout.close()


def abort(url):
    request = Request(f"{url}/api/runs/deaf/abort", data=b"{}", headers={"content-type": "application/json"})
    with contextlib.suppress(OSError, HTTPException):
        urlopen(request, timeout=TIME_LIMIT_SECONDS)
