"""Processes on one store draw on the same money, and together they never draw more than there is."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from databases import new_store, query
from proctor.errors import OwnershipLost
from proctor.session import ModelCall
from proctor.store import MoneyLimits, Store, batches, ledger
from proctor.store.database import open_database
from proctor.store.writer import this_process
from proctor.testing import eventually
from stocked import NOW, add_batch, owned, session
from waiting import TIME_LIMIT_SECONDS, while_running

DATABASES = ["sqlite"]
DEAR = "{{latency_seconds: {latency}, rules: [{{reply: ok, usage: {{input_tokens: 1, output_tokens: 1}}}}]}}"
PLAN = """
runId: {run_id}
concurrency: 8
prices: {{scripted/{model}: {{input: 0, output: 10000}}}}
defaults: {{settings: {{max_tokens: 1}}{more}}}
matrix: [{{prompt: hello, model: scripted/{model}, runs: {runs}}}]
"""
DRAW = """
import sys
from datetime import UTC, datetime
from proctor.store import MoneyLimits, Store, ledger
from proctor.store.writer import this_process

holder, drawn = this_process(), 0.0
with Store(sys.argv[1]) as store:
    while True:
        asked = {"wanted_usd": 0.01, "least_usd": 0.01, "limits": MoneyLimits(run_usd=1.0)}
        got = store.change(ledger.draw, "run", holder, now=datetime.now(UTC), **asked)
        if not got.usd:
            break
        drawn += got.usd
print(drawn, flush=True)
# What a process that has gone had drawn and not spent is there for the others.
sys.stdin.read()
"""


@pytest.fixture
def shop(proctor, url):
    """The command, on one store, with a model that costs a cent a call."""
    proctor.environment["PROCTOR_STORE"] = url
    proctor.url = url
    (proctor.folder / "dear.yaml").write_text(DEAR.format(latency=0.01))
    (proctor.folder / "slow.yaml").write_text(DEAR.format(latency=60))
    return proctor


def write(shop, run_id, *, runs, model="dear", more=""):
    plan = shop.folder / f"{run_id}.yaml"
    plan.write_text(PLAN.format(run_id=run_id, runs=runs, model=model, more=more))
    return plan.name


def allow(shop, usd):
    (shop.folder / "proctor.toml").write_text(f"[budget]\nusd = {usd}\n")


def total(store, kinds="'draw', 'close'", column="reservedUsd") -> float:
    (row,) = query(
        store, f'SELECT COALESCE(SUM("{column}"), 0) AS "usd" FROM "ledger" WHERE "kind" IN ({kinds})'
    )
    return float(row["usd"])


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_two_batches_started_at_once_never_pass_the_budget_of_their_store(shop):
    allow(shop, 0.25)
    with Store(shop.url) as store:
        running = [shop.start("batch", write(shop, run_id, runs=30), "--json") for run_id in ("a", "b")]
        most = 0.0
        while any(process.poll() is None for process in running):
            most = max(most, total(store))
            time.sleep(0.002)
        said = [process.communicate()[0] for process in running]
        spent = total(store, "'settle'", "spentUsd")

        assert [process.returncode for process in running] == [3, 3], said
        assert most <= 0.25 + 1e-9
        assert 0.2 <= spent <= 0.25 + 1e-9
        assert total(store) == pytest.approx(spent), "at the end nothing is held that was not spent"
        batches = [store.read.batch(run_id, NOW) for run_id in ("a", "b")]
        assert [(batch["status"], batch["reason"]) for batch in batches] == [("halted", "store_budget")] * 2
        assert all("[budget] in proctor.toml" in text for text in said)

        allow(shop, 1)
        for run_id in ("a", "b"):
            assert shop("resume", run_id).returncode == 0
            assert store.read.totals(run_id)["counts"]["success"] == 30
        assert total(store, "'settle'", "spentUsd") == pytest.approx(0.6)


def test_what_a_killed_process_had_drawn_is_there_for_the_next_one(shop):
    allow(shop, 0.25)
    held = shop.start("batch", write(shop, "held", runs=1, model="slow", more=", budget: 0.2"))
    with Store(shop.url) as store:
        eventually(while_running(held, lambda: total(store, "'call'") > 0))
        assert total(store) >= 0.2
        held.kill()
        held.wait()
        held.stdout.close()

        ran = shop("batch", write(shop, "next", runs=3, more=", budget: 0.2"))

        assert ran.returncode == 0, ran.stderr
        assert total(store) == pytest.approx(0.03 + 0.01), "and the cent of the call that was under way"


def test_a_batch_waits_for_what_another_process_may_yet_give_back(shop):
    (shop.folder / "slow.yaml").write_text(DEAR.format(latency=1))
    allow(shop, 0.25)
    first = shop.start("batch", write(shop, "first", runs=1, model="slow", more=", budget: 0.2"))
    with Store(shop.url) as store:
        eventually(while_running(first, lambda: total(store) >= 0.2))

        ran = shop("batch", write(shop, "second", runs=2, more=", budget: 0.2"))

        assert (ran.returncode, first.wait(TIME_LIMIT_SECONDS)) == (0, 0), ran.stderr
        first.stdout.close()
        assert total(store) == pytest.approx(0.03)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_several_processes_that_spend_for_one_batch_never_pass_its_budget(url):
    with Store(url) as store:
        add_batch(store, count=1)
    talk = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([sys.executable, "-c", DRAW, url], **talk) for _ in range(3)]
    drawn = [float(process.stdout.readline()) for process in running]

    assert 0.98 <= sum(drawn) <= 1.0 + 1e-9
    with Store(url) as store:
        assert total(store) == pytest.approx(sum(drawn))
    for process in running:
        process.communicate(timeout=TIME_LIMIT_SECONDS)


class Interrupted:
    """A connection on which something happens elsewhere right after the sum of all draws was read."""

    def __init__(self, connection, happens):
        self._connection, self._happens = connection, happens

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def value(self, kind, sql, parameters=()):
        read = self._connection.value(kind, sql, parameters)
        if "SUM" in sql and not parameters and self._happens:
            happens, self._happens = self._happens, None
            happens()
        return read


def test_money_that_is_returned_while_another_process_asks_is_not_missed(server):
    """In PostgreSQL each statement sees what others have committed by then."""
    url, limits, first = new_store(server), MoneyLimits(store_usd=0.25), this_process()
    with Store(url) as store:
        add_batch(store, "first", count=1, owner=first)
        add_batch(store, "second", count=1, owner="second")
        store.change(ledger.draw, "first", first, wanted_usd=0.2, least_usd=0.2, limits=limits, now=NOW)
        connection = open_database(url).connect()
        connection.begin()

        drawn = ledger.draw(
            Interrupted(connection, lambda: store.change(ledger.give_back, "first", first, 0.2, NOW)),
            "second", "second", wanted_usd=0.2, least_usd=0.2, limits=limits, now=NOW,
        )  # fmt: skip

        connection.commit()
        connection.close()
        assert drawn.usd >= 0.2
        assert total(store) == pytest.approx(drawn.usd)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_process_that_was_taken_for_dead_settles_what_its_calls_came_to(store, has_ended):
    """It was cut off from the store: another has resumed its batch meanwhile, and estimated its calls."""
    away = "elsewhere:1:1:x"
    add_batch(store, count=1, owner=away)
    writer = store.writer(owned("run", away))

    def entry(position, kind, reserved, spent=0.0):
        writer.append("ledger", ("one", position, "run", "item", "t", kind, reserved, spent, away))

    recorder = session(writer, "one")
    entry(1, "reserve", 0.05)
    entry(2, "call", 0.03)
    writer.flush().result()

    def take_over(connection):
        """While nothing can be written, one of two calls ends, or the whole attempt does."""
        batches.claim(connection, "run", this_process(), datetime.now(UTC) + timedelta(minutes=1))
        ledger.release(connection, "run", away, NOW)
        recorder.record(ModelCall(model="m", cost_usd=0.002))
        entry(3, "call", -0.02)
        if has_ended:
            entry(4, "settle", -0.05, 0.004)
        return writer.flush()

    with pytest.raises(OwnershipLost):
        store._transaction(take_over).result()

    rows = query(store, 'SELECT * FROM "ledger" WHERE "kind" = \'estimate\'')
    assert [(row["reservedUsd"], row["spentUsd"]) for row in rows] == [(-0.05, 0.03)]
    # One has cost 0.002, and the other may cost 0.01.
    spent = 0.004 if has_ended else 0.012
    assert store.read.reserved_and_spent("run") == (pytest.approx(0, abs=1e-9), pytest.approx(spent))
    limits = MoneyLimits(run_usd=0.1)
    drawn = store.change(ledger.draw, "run", "me", wanted_usd=1, least_usd=0, limits=limits, now=NOW)
    assert drawn.usd == pytest.approx(0.1 - spent)


def test_the_document_of_a_run_names_the_budget_of_the_store(shop):
    allow(shop, 0.02)
    ran = shop("batch", write(shop, "a", runs=5), "--json")

    document = json.loads(ran.stdout)
    assert (ran.returncode, document["status"], document["reason"]) == (3, "halted", "store_budget")
    assert document["successCount"] == 2


def test_with_a_budget_for_the_store_a_model_needs_a_known_price(shop):
    allow(shop, 5)
    plan = shop.folder / "plan.yaml"
    plan.write_text("matrix: [{prompt: hello, model: acme/unheard-of}]")

    ran = shop("batch", "plan.yaml")
    assert ran.returncode == 2

    shop.environment |= {"ACME_BASE_URL": "http://127.0.0.1:9/v1", "ACME_API_KEY": "k" * 20}
    ran = shop("batch", "plan.yaml")

    assert ran.returncode == 2
    assert "the price of acme/unheard-of is unknown, so the store-wide budget" in ran.stderr
