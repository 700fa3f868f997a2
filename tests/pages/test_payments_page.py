"""The payments page in a real browser, on a real demo: copies, lost answers, a killed worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.integration.accounts_process import Process
from tests.pages.test_page import BROWSER, FLAGS, PATIENCE_MS


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder: Path = tmp_path_factory.mktemp("payments")
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
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda m: errors.append(m.text) if "Security Policy" in m.text else None)
    yield opened
    context.close()
    assert errors == []


def newest(page: Page):
    return page.locator(".receipt").first


def switch(page: Page, name: str) -> None:
    page.locator("label", has_text=name).click()


def test_a_visitor_sees_one_charge_a_killed_worker_a_doubt_and_what_ended_it(page):
    page.goto("/")
    page.get_by_role("link", name="Payments").click()
    expect(page.get_by_text("No webhook has come yet")).to_be_visible()

    page.get_by_role("button", name="Send one 20 times in parallel").click()
    expect(page.get_by_role("status")).to_contain_text("1 answer 202 accepted")
    expect(page.get_by_role("status")).to_contain_text("19 answers 202 duplicate")
    expect(newest(page)).to_contain_text("mail confirmed")
    expect(newest(page)).to_contain_text("the bank's own books: 1 charge")
    expect(newest(page).locator(".story")).to_contain_text("attempt 1 ended: success")
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
    expect(newest(page)).to_contain_text("Invoice 483")
    expect(newest(page)).to_contain_text("mail confirmed")
    expect(worker).to_contain_text(re.compile(r"pid \d+"))

    # Nobody knows: the answer is lost, and nobody answers questions.
    switch(page, "Lose answers")
    switch(page, "Answer no questions")
    page.get_by_role("button", name="Send a webhook").click()
    expect(newest(page)).to_contain_text("Invoice 484")
    expect(newest(page)).to_contain_text("charge unknown")
    expect(page.locator("#doubts")).to_contain_text("may have acted, nobody knows yet")
    expect(page.locator("#doubts")).to_contain_text("a look-up that finds it at bank")

    switch(page, "Answer no questions")
    expect(page.locator("#silent")).not_to_be_checked()
    # The worker may ask by itself meanwhile; then there is no button left to press.
    page.evaluate("document.querySelector('#doubts button')?.click()")
    expect(newest(page)).to_contain_text("charge confirmed")
    expect(newest(page)).to_contain_text("the bank's own books: 1 charge")
    expect(page.locator("#n-charges")).to_have_text("3")

    page.get_by_role("link", name="Accounts").click()
    expect(page.get_by_label("Balance of Ada")).to_have_text(re.compile(r"\d"))
