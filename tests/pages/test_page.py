"""The pages in a real browser, on a real demo: presses, lost answers, reloads, kills, payments."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from landed.demo.bank import ACCOUNTS
from tests.integration.accounts_process import Process

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = [
    *("--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-default-apps", "--disable-extensions"),
    *("--disable-domain-reliability", "--metrics-recording-only", "--no-pings"),
]
IDS = {name: account for account, (name, _) in ACCOUNTS.items()}
KEY = re.compile(r"[0-9a-f-]{36}")
PATIENCE_MS = 20_000
MINUS = "\u2212"

if BROWSER is None:
    pytest.skip("no browser for the page's tests: apt install chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder: Path = tmp_path_factory.mktemp("page")
    ready = "demo ready at http://127.0.0.1:"
    with Process("demo", ready=ready, cwd=folder, LANDED_DEMO_PORT="0") as running:
        yield running
        code, errors = running.stop()
        assert code == 0, errors


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(demo: Process, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(base_url=demo.url)
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    # What the page had kept when it sent each copy, seen from inside.
    context.add_init_script("""
        window.copies = [];
        const real = window.fetch;
        window.fetch = (path, options) => {
          const key = options?.headers?.["Idempotency-Key"];
          if (key) window.copies.push({ path, key, kept: Object.keys(localStorage), body: options.body });
          return real(path, options);
        };
    """)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda m: errors.append(m.text) if "Security Policy" in m.text else None)
    strangers: list[str] = []
    opened.on(
        "request",
        lambda r: None if r.url.startswith((demo.url, "data:")) else strangers.append(r.url),
    )
    open_page(opened)
    yield opened
    context.close()
    assert errors == []
    assert strangers == []


def open_page(page: Page) -> None:
    page.goto("/")
    for name in IDS:
        expect(page.get_by_label(f"Balance of {name}")).to_have_text(re.compile(r"\d"))


def cents(page: Page, name: str) -> int:
    text = page.get_by_label(f"Balance of {name}").inner_text()
    return int(text.replace(",", "").replace(".", ""))


def stored(page: Page, name: str) -> tuple[int, int]:
    """Balance and version as the service has them."""
    answer = page.request.get(f"/api/accounts/{IDS[name]}/balance").json()
    return answer["balanceCents"], answer["aggregateVersion"]


def press(page: Page, operation: str, name: str, amount: str, to: str | None = None) -> None:
    page.get_by_label(f"Amount for {name}").fill(amount)
    if to is not None:
        page.get_by_label(f"Transfer from {name} to").select_option(label=f"to {to}")
    page.get_by_role("button", name=re.compile(f"^{operation} (to|from) {name}$")).click()


def newest(page: Page):
    return page.locator(".intent").first


def copies(page: Page) -> list[dict]:
    return page.evaluate("window.copies")


def test_a_deposit_and_a_transfer_show_what_landed(page):
    ada, grace = stored(page, "Ada")[0], stored(page, "Grace")[0]
    press(page, "Deposit", "Ada", "12.50")
    expect(newest(page)).to_have_attribute("data-state", "done")
    expect(newest(page).locator(".badge")).to_have_text("fresh")
    press(page, "Transfer", "Ada", "0,29", to="Grace")
    expect(newest(page)).to_contain_text("Transfer 0.29, Ada to Grace")
    expect(newest(page)).to_have_attribute("data-state", "done")
    expect(page.get_by_label("History of Grace").locator("li").first).to_contain_text("from Ada")
    expect(page.get_by_label("History of Ada").locator("li").first).to_contain_text(f"{MINUS}0.29")
    assert cents(page, "Ada") == stored(page, "Ada")[0] == ada + 1250 - 29
    assert cents(page, "Grace") == stored(page, "Grace")[0] == grace + 29


@pytest.mark.scenario("SWA-93")
def test_a_lost_answer_is_asked_for_again_under_its_key_and_is_the_original(page):
    before, version = stored(page, "Ada")
    page.locator("label", has_text="Lose first answers").click()
    press(page, "Withdraw", "Ada", "5")
    row = newest(page)
    expect(row).to_have_attribute("data-state", "done")
    expect(row.locator(".badge")).to_have_text("original")
    expect(row.locator(".attempt").first).to_have_text("no answer")
    expect(row.locator(".attempt").last).to_contain_text("original")
    assert stored(page, "Ada") == (before - 500, version + 1)
    sent = copies(page)
    assert len({copy["key"] for copy in sent}) == 1
    assert len({copy["body"] for copy in sent}) == 1
    for copy in sent:
        # Kept before the first byte left, and gone only after the final answer.
        assert f"landed.intent.{KEY.search(copy['key'])[0]}" in copy["kept"]
    assert page.evaluate("Object.keys(localStorage).length") == 0


CHANGES = re.compile("/(deposit|withdraw|transfers)$")


def swallow(page: Page) -> None:
    """Carry every change out, and let no answer to it arrive."""

    def carried_out(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route(CHANGES, carried_out)


@pytest.mark.scenario("SWA-94")
def test_after_a_reload_a_pending_intent_is_offered_with_its_key_and_does_not_double(page):
    before, version = stored(page, "Edsger")
    swallow(page)
    press(page, "Deposit", "Edsger", "3.00")
    expect(newest(page).locator(".attempt.lost").first).to_be_visible()
    key = newest(page).get_attribute("data-key")
    page.unroute_all()
    # Keep the page's own retry from settling it before the reload does away with it.
    page.route(re.compile("/deposit$"), lambda route: route.abort())
    page.reload()
    page.unroute_all()
    row = page.locator(f'.intent[data-key="{key}"]')
    expect(row).to_have_attribute("data-state", "unresolved")
    expect(page.get_by_label("Amount for Edsger")).to_be_disabled()
    row.get_by_role("button", name="Check or resend (same key)").click()
    expect(row).to_have_attribute("data-state", "done")
    expect(row.locator(".badge")).to_have_text("original")
    expect(page.get_by_label("Amount for Edsger")).to_be_enabled()
    assert stored(page, "Edsger") == (before + 300, version + 1)


@pytest.mark.scenario("SWA-95")
def test_a_double_click_is_one_intent(page):
    before, version = stored(page, "Barbara")
    page.get_by_label("Amount for Barbara").fill("1.00")
    page.get_by_role("button", name="Deposit to Barbara").dblclick()
    expect(newest(page)).to_have_attribute("data-state", "done")
    expect(page.get_by_label("History of Barbara").locator("li").first).to_contain_text("+1.00")
    assert len(copies(page)) == 1
    assert page.locator(".intent").count() == 1
    assert stored(page, "Barbara") == (before + 100, version + 1)


def test_a_window_that_ends_without_an_answer_leaves_the_form_locked_until_one_decides(page):
    def short_window(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "windowSeconds": 1})

    page.route("**/api/info", short_window)
    page.reload()
    expect(page.locator("#fleet-window")).to_have_text("1 s")
    before, version = stored(page, "Edsger")
    swallow(page)
    press(page, "Deposit", "Edsger", "2")
    row = newest(page)
    expect(row).to_have_attribute("data-state", "unresolved")
    expect(page.get_by_role("button", name="Deposit to Edsger")).to_be_disabled()
    keys = {copy["key"] for copy in copies(page)}
    # Only the changes: the page asks for the window again now and then, and must find it short.
    page.unroute(CHANGES)
    expect(row).to_contain_text("window over")
    # The window is over, so it looks before it sends, and there is nothing left to send.
    sent = len(copies(page))
    row.get_by_role("button", name="Check or resend").click()
    expect(newest(page)).to_contain_text(f"it landed as version {version + 1}")
    expect(newest(page)).to_have_attribute("data-state", "done")
    assert (len(copies(page)), len(keys)) == (sent, 1)
    assert stored(page, "Edsger") == (before + 200, version + 1)

    page.route(re.compile("/deposit$"), lambda route: route.abort())
    page.reload()
    expect(page.locator("#fleet-window")).to_have_text("1 s")
    press(page, "Deposit", "Edsger", "2")
    expect(newest(page)).to_have_attribute("data-state", "unresolved")
    expect(newest(page)).to_contain_text("window over")
    page.once("dialog", lambda dialog: dialog.dismiss())
    with page.expect_event("dialog") as asked:
        newest(page).get_by_role("button", name="Check or resend").click()
    assert "happen twice" in asked.value.message
    expect(newest(page)).to_have_attribute("data-state", "unresolved")
    page.once("dialog", lambda dialog: dialog.accept())
    newest(page).get_by_role("button", name="Discard").click()
    expect(newest(page)).to_have_attribute("data-state", "discarded")
    expect(page.get_by_role("button", name="Deposit to Edsger")).to_be_enabled()
    assert page.evaluate("Object.keys(localStorage).length") == 0


def test_a_killed_replica_is_shown_comes_back_and_takes_no_answer_with_it(page):
    before, version = stored(page, "Grace")
    page.locator("label", has_text="Lose first answers").click()
    page.get_by_role("button", name="Kill replica-a").click()
    replica = page.get_by_label("Replicas").locator("li", has_text="replica-a")
    expect(replica).to_contain_text(re.compile("down|starting"))
    press(page, "Deposit", "Grace", "4")
    expect(newest(page)).to_have_attribute("data-state", "done")
    expect(newest(page).locator(".badge")).to_have_text("original")
    expect(newest(page).locator(".attempt").last).to_contain_text("replica-b")
    assert stored(page, "Grace") == (before + 400, version + 1)
    expect(replica).to_contain_text("pid")


def test_every_short_experiment_ends_as_expected(page):
    page.get_by_label("Account to experiment on").select_option(label="Barbara")
    for name in (
        "Send twice at once",
        "Drop my answer",
        "Same key, other amount",
        "Resend last key",
    ):
        page.get_by_role("button", name=name).click()
        finding = page.locator(f'.finding[data-experiment="{name}"]').first
        expect(finding.locator(".badge")).to_have_text("as expected")


def test_changes_made_elsewhere_appear_live(page):
    expect(page.locator("#fleet-live")).to_contain_text("on")
    elsewhere = page.request.post(
        f"/api/accounts/{IDS['Barbara']}/deposit", data={"amountCents": 777}
    )
    balance = elsewhere.json()["balanceCents"]
    shown = f"{balance // 100:,}.{balance % 100:02}"
    expect(page.get_by_label("Balance of Barbara")).to_have_text(shown)


def test_money_is_read_as_decimal_text_and_never_rounded(page):
    read = page.evaluate("""async () => {
        const { parseCents, formatCents } = await import("/money.js");
        const texts = ["0.29", "1,5", "12", " 7.05 ", "21474836.47", "1.005", "-1", "1e2", "", "0",
                       "0.001", "21474836.48", "٣", "1.", ".5", "1 000", "NaN", "0x10"];
        return [texts.map((text) => String(parseCents(text))),
                [5n, 123456789n, -250n, 9223372036854775807n].map(formatCents)];
    }""")
    assert read[0] == ["29", "150", "1200", "705", "2147483647"] + ["null"] * 13
    assert read[1] == ["0.05", "1,234,567.89", f"{MINUS}2.50", "92,233,720,368,547,758.07"]


def test_an_answer_of_an_older_version_never_turns_the_display_back(page):
    shown = page.get_by_label("Balance of Ada").inner_text()
    version = stored(page, "Ada")[1]
    page.evaluate(
        """async ([accountId, aggregateVersion]) => {
            const { learn } = await import("/accounts.js");
            learn({ accountId, balanceCents: 1, aggregateVersion });
        }""",
        [IDS["Ada"], version - 1],
    )
    assert page.get_by_label("Balance of Ada").inner_text() == shown


def test_a_name_is_text_whatever_it_looks_like(page):
    name = "<img src=x onerror=alert(1)>"
    page.evaluate(
        """async (name) => {
            const { addAccount } = await import("/accounts.js");
            addAccount("0d9e9cd1-0000-4000-8000-00000000abcd", name, () => false);
        }""",
        name,
    )
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert page.locator("img").count() == 0


def test_nothing_is_sent_if_the_key_cannot_be_kept(page):
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    press(page, "Deposit", "Ada", "1")
    expect(page.locator("#page-problem")).to_contain_text("nothing was sent")
    assert copies(page) == []


# --- the payments


def switch(page: Page, name: str) -> None:
    page.locator("label", has_text=name).click()


def test_a_visitor_sees_one_charge_a_killed_worker_a_doubt_and_what_ended_it(page):
    newest = page.locator(".receipt").first
    page.get_by_role("link", name="Payments").click()
    expect(page.get_by_text("No webhook has come yet")).to_be_visible()

    page.get_by_role("button", name="Send one 20 times in parallel").click()
    expect(page.get_by_role("status")).to_contain_text("1 answer 202 accepted")
    expect(page.get_by_role("status")).to_contain_text("19 answers 202 duplicate")
    expect(newest).to_contain_text("mail confirmed")
    expect(newest).to_contain_text("the bank's own books: 1 charge")
    expect(newest.locator(".story")).to_contain_text("attempt 1 ended: success")
    expect(page.locator("#n-sent")).to_have_text("20")
    expect(page.locator("#n-receipts")).to_have_text("1")
    expect(page.locator("#n-charges")).to_have_text("1")

    page.get_by_role("button", name="Send an unsupported type").click()
    expect(page.locator("#aside")).to_contain_text("coupon.redeemed")

    # Received while the worker is dead: held, and handled when it is back.
    worker = page.locator("#processes li", has_text="worker")
    pid = re.search(r"pid \d+", worker.inner_text())[0]
    page.get_by_role("button", name="Restart the worker").click()
    expect(worker).not_to_contain_text(pid)
    page.get_by_role("button", name="Send a webhook").click()
    expect(newest).to_contain_text("Invoice 483")
    expect(newest).to_contain_text("mail confirmed")
    expect(worker).to_contain_text(re.compile(r"pid \d+"))

    # Nobody knows: the answer is lost, and nobody answers questions.
    switch(page, "Lose answers")
    switch(page, "Answer no questions")
    page.get_by_role("button", name="Send a webhook").click()
    expect(newest).to_contain_text("Invoice 484")
    expect(newest).to_contain_text("charge unknown")
    expect(page.locator("#doubts")).to_contain_text("may have acted, nobody knows yet")
    expect(page.locator("#doubts")).to_contain_text("a look-up that finds it at bank")

    switch(page, "Answer no questions")
    expect(page.locator("#silent")).not_to_be_checked()
    # The worker may ask by itself meanwhile; then there is no button left to press.
    page.evaluate("document.querySelector('#doubts button')?.click()")
    expect(newest).to_contain_text("charge confirmed")
    expect(newest).to_contain_text("the bank's own books: 1 charge")
    expect(page.locator("#n-charges")).to_have_text("3")

    page.get_by_role("link", name="Accounts").click()
    expect(page.get_by_label("Balance of Ada")).to_have_text(re.compile(r"\d"))
