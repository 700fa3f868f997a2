// The intent log: one row an intent, newest first, and what its copies were answered.

import { nameOf } from "./accounts.js";
import { $, h, say } from "./dom.js";
import { fleet } from "./fleet.js";
import { isOpen } from "./intents.js";
import { formatCents } from "./money.js";

const ROWS_MAX = 30;
const rows = new Map(); // key -> { intent, element, left }

export function sentence(intent) {
  const amount = formatCents(intent.cents);
  switch (intent.operation) {
    case "deposit": return `Deposit ${amount} to ${nameOf(intent.account)}`;
    case "withdraw": return `Withdraw ${amount} from ${nameOf(intent.account)}`;
    default: return `Transfer ${amount}, ${nameOf(intent.account)} to ${nameOf(intent.to)}`;
  }
}

/** Show an intent as it stands now. `actions` has resend(intent) and discard(intent). */
export function showIntent(intent, actions) {
  const known = rows.get(intent.key);
  const left = h("span", { class: "left" });
  const element = h("li", { class: "intent", "data-key": intent.key, "data-state": intent.state },
    h("div", { class: "title" }, h("span", {}, sentence(intent)), badge(intent)),
    h("div", { class: "attempts", "aria-label": "Copies sent" }, ...intent.attempts.flatMap(attempt)),
    intent.note === "" ? null : h("p", { class: "note" }, intent.note),
    intent.state !== "unresolved" ? null : h("div", { class: "actions" },
      h("button", { type: "button", class: "small main", onclick: () => actions.resend(intent) }, "Check or resend (same key)"),
      h("button", { type: "button", class: "small", onclick: () => actions.discard(intent) }, "Discard")),
    h("div", { class: "foot" }, h("span", { class: "mono", title: "Idempotency-Key" }, intent.key), left));
  if (known) known.element.replaceWith(element);
  else $("intents").prepend(element);
  rows.set(intent.key, { intent, element, left });
  $("no-intents").hidden = true;
  prune();
  tick();
}

function badge(intent) {
  const how = intent.attempts.findLast((copy) => copy.how !== "")?.how;
  const text = intent.state === "done" ? how ?? "done" : intent.state;
  return h("span", { class: `badge ${text}` }, text);
}

function attempt(copy, index) {
  const isDone = copy.status !== null || copy.isLost;
  const text = copy.isLost ? "no answer"
    : copy.status === null ? "sending"
    : [copy.status, copy.replica, copy.how || copy.code.toLowerCase().replaceAll("_", " ")].filter(Boolean).join(" · ");
  const kind = copy.isLost ? "lost" : !isDone ? "sending" : copy.status < 300 ? "" : "refusal";
  const chip = h("span", { class: `attempt ${kind}` }, text);
  return index === 0 ? [chip] : [h("span", { class: "arrow", "aria-hidden": "true" }, "→"), chip];
}

function prune() {
  for (const [key, row] of rows) {
    if (rows.size <= ROWS_MAX) return;
    if (isOpen(row.intent)) continue;
    row.element.remove();
    rows.delete(key);
  }
}

/** Count down how long each key is promised to be remembered. */
export function tick() {
  for (const { intent, left } of rows.values()) {
    const seconds = Math.ceil((intent.madeAt + fleet.windowMs - Date.now()) / 1000);
    say(left, seconds > 0 ? `${seconds} s left in the window` : "window over");
  }
}
