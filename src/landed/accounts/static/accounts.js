// Account cards. What is shown never goes back: a late answer of a lower version changes nothing.

import { get } from "./api.js";
import { $, h, say, warn } from "./dom.js";
import { servedBy } from "./fleet.js";
import { formatCents, parseCents } from "./money.js";

const HISTORY_SHOWN = 30n;
const cards = new Map(); // account id -> card

export const nameOf = (id) => cards.get(id)?.name ?? id.slice(0, 8);
export const accountIds = () => [...cards.keys()];
export const versionOf = (id) => cards.get(id)?.version ?? 0n;

/** Take a balance from an answer, if it is at least as new as the one shown. */
export function learn({ accountId, balanceCents, aggregateVersion }) {
  const card = cards.get(accountId);
  const version = BigInt(aggregateVersion);
  if (!card || version < card.version) return;
  const isNews = version > card.version;
  card.version = version;
  say(card.balance, formatCents(balanceCents));
  say(card.position, version === 0n ? "never written" : `version ${version}`);
  if (isNews && card.isShown) {
    card.balance.classList.remove("changed");
    void card.balance.offsetWidth; // start the animation again
    card.balance.classList.add("changed");
  }
  card.isShown = true;
}

/** Fetch balance and history of an account; a version tells which one must be in it. */
export async function refresh(id, minVersion = 0n) {
  const card = cards.get(id);
  if (!card) return;
  if (card.isRefreshing) { card.mustRefresh = true; return; }
  card.isRefreshing = true;
  try {
    const newest = minVersion > card.version ? minVersion : card.version;
    const first = newest > HISTORY_SHOWN ? newest - HISTORY_SHOWN + 1n : 1n;
    const { body, replica } = await get(`/api/accounts/${id}/history?fromVersion=${first}&limit=200`);
    servedBy(replica);
    learn({ accountId: id, balanceCents: body.balanceCents, aggregateVersion: body.currentAggregateVersion });
    showHistory(card, body);
    warn($("page-problem"), "");
  } catch (error) {
    warn($("page-problem"), `${card.name} could not be read: ${error.message}`);
  } finally {
    card.isRefreshing = false;
    if (card.mustRefresh) { card.mustRefresh = false; refresh(id); }
  }
}

/** Look an intent's key up in the newest thousand events of its account. Returns the version, or null. */
export async function findInHistory(id, key) {
  const { body: balance } = await get(`/api/accounts/${id}/balance`);
  const version = BigInt(balance.aggregateVersion);
  const first = version > 1000n ? version - 999n : 1n;
  const { body } = await get(`/api/accounts/${id}/history?fromVersion=${first}&limit=1000`);
  return body.events.find((event) => event.eventId === key)?.aggregateVersion ?? null;
}

function showHistory(card, body) {
  if (BigInt(body.currentAggregateVersion) < card.historyVersion) return;
  card.historyVersion = BigInt(body.currentAggregateVersion);
  const rows = body.events.slice(-Number(HISTORY_SHOWN)).reverse().map((event) => {
    const isPlus = event.type === "Deposited" || event.type === "TransferredIn";
    const what = {
      Deposited: "Deposit", Withdrawn: "Withdrawal",
      TransferredOut: `to ${nameOf(event.toAccountId ?? "")}`,
      TransferredIn: `from ${nameOf(event.fromAccountId ?? "")}`,
    }[event.type] ?? event.type;
    return h("li", { title: `${event.timestamp}  key ${event.eventId ?? "none"}` },
      h("span", { class: "what" }, what),
      h("span", { class: isPlus ? "plus" : "minus" }, `${isPlus ? "+" : "−"}${formatCents(event.amountCents)}`),
      h("span", { class: "at" }, `v${event.aggregateVersion}`));
  });
  card.history.replaceChildren(...rows);
  card.history.hidden = rows.length === 0;
}

/** Show a card for an account, once. `press(operation, id, cents, to)` is called for a button. */
export function addAccount(id, name, press) {
  const known = cards.get(id);
  if (known) return;
  const card = makeCard(id, name || `Account ${id.slice(0, 8)}`, press);
  cards.set(id, card);
  $("cards").append(card.element);
  $("no-accounts").hidden = true;
  offerTargets();
}

function makeCard(id, name, press) {
  const amount = h("input", { type: "text", inputmode: "decimal", autocomplete: "off", placeholder: "0.00", "aria-label": `Amount for ${name}` });
  const target = h("select", { class: "to", "aria-label": `Transfer from ${name} to` });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const go = (operation) => {
    const cents = parseCents(amount.value);
    warn(problem, cents === null ? "An amount such as 12.50, at most two decimals." : "");
    if (cents === null) return;
    if (press(operation, id, cents, operation === "transfer" ? target.value : null)) amount.value = "";
  };
  const button = (operation, label, kind) =>
    h("button", { type: operation === "deposit" ? "submit" : "button", class: kind, "aria-label": `${label} ${operation === "deposit" ? "to" : "from"} ${name}`,
      ...(operation === "deposit" ? {} : { onclick: () => go(operation) }) }, label);
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); go("deposit"); } },
    amount, button("deposit", "Deposit", "main"), button("withdraw", "Withdraw", ""),
    target, button("transfer", "Transfer", ""), problem);
  const card = {
    name, target, form, version: 0n, historyVersion: 0n, isShown: false, isRefreshing: false, mustRefresh: false,
    balance: h("p", { class: "balance", "aria-label": `Balance of ${name}` }, "…"),
    position: h("span", { class: "position" }, ""),
    locked: h("p", { class: "locked", hidden: true }),
    history: h("ol", { class: "history", "aria-label": `History of ${name}`, tabindex: "0", hidden: true }),
  };
  card.element = h("article", { class: "card", "aria-label": name, title: id },
    h("header", {}, h("h3", {}, name), card.position), card.balance, form, card.locked, card.history);
  return card;
}

function offerTargets() {
  for (const [id, card] of cards) {
    const chosen = card.target.value;
    const others = [...cards].filter(([other]) => other !== id);
    card.target.replaceChildren(...others.map(([other, { name }]) => h("option", { value: other }, `to ${name}`)));
    if (others.some(([other]) => other === chosen)) card.target.value = chosen;
  }
  const experiment = $("experiment-account");
  const chosen = experiment.value;
  experiment.replaceChildren(...[...cards].map(([id, { name }]) => h("option", { value: id }, name)));
  if (cards.has(chosen)) experiment.value = chosen;
}

/** Lock the forms of the accounts whose intent has no final answer yet, and free the others. */
export function lockForms(openIntents) {
  const reasons = new Map(openIntents.map((intent) => [intent.account, intent.state]));
  for (const [id, card] of cards) {
    const state = reasons.get(id);
    for (const field of card.form.elements) field.disabled = state !== undefined;
    const text = state === "unresolved" ? "Locked: an intent has no final answer. Resend or discard it." : "";
    warn(card.locked, text);
  }
}
