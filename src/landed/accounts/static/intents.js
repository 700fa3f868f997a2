// What a person meant to do: one key each, kept before the first byte leaves, until a final answer.

import { request } from "./api.js";

const PREFIX = "landed.intent.";
const BACKOFF_FIRST_MS = 300;
const BACKOFF_MAX_MS = 5000;
const COPY_LIVES_MS = 25000; // a copy without an answer may be executed for so long

const PATHS = {
  deposit: (intent) => `/api/accounts/${intent.account}/deposit`,
  withdraw: (intent) => `/api/accounts/${intent.account}/withdraw`,
  transfer: () => "/api/transfers",
};

/** A fresh key; also where the page is not served from a secure origin. */
export function newKey() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export function bodyOf(intent) {
  const cents = Number(intent.cents); // at most 2^31 - 1, so it is exact
  return JSON.stringify(intent.operation === "transfer"
    ? { fromAccountId: intent.account, toAccountId: intent.to, amountCents: cents }
    : { amountCents: cents });
}

/** Make an intent and keep it. Throws if it cannot be kept: then nothing may be sent. */
export function newIntent(operation, account, cents, to = null) {
  const intent = {
    key: newKey(), operation, account, to, cents: String(cents),
    madeAt: Date.now(), attempts: [], state: "sending", note: "",
  };
  keep(intent);
  return intent;
}

function keep(intent) {
  const { key, operation, account, to, cents, madeAt } = intent;
  localStorage.setItem(PREFIX + key, JSON.stringify({ key, operation, account, to, cents, madeAt }));
}

export function forget(intent) {
  localStorage.removeItem(PREFIX + intent.key);
}

/** Intents of an earlier life of this page that never got a final answer, oldest first. */
export function pendingIntents() {
  const found = [];
  for (let index = 0; index < localStorage.length; index += 1) {
    const name = localStorage.key(index);
    if (!name.startsWith(PREFIX)) continue;
    try {
      const kept = JSON.parse(localStorage.getItem(name));
      if (!(kept.operation in PATHS) || name !== PREFIX + kept.key) continue;
      found.push({ ...kept, attempts: [], state: "unresolved",
        note: "left over: this page closed before a final answer came" });
    } catch { /* not ours */ }
  }
  return found.sort((a, b) => a.madeAt - b.madeAt);
}

export const isOpen = (intent) => intent.state === "sending" || intent.state === "unresolved";

/** Send one copy and note it on the intent. Returns the answer, or null if none came. */
export async function attempt(intent, { onChange, body = bodyOf(intent), ...options }) {
  const copy = { sentAt: Date.now(), status: null, replica: "", how: "", code: "", isLost: false };
  intent.attempts.push(copy);
  onChange(intent);
  let answer = null;
  try {
    answer = await request(PATHS[intent.operation](intent), { body, key: intent.key, ...options });
    Object.assign(copy, { status: answer.status, replica: answer.replica, how: answer.how, code: answer.code });
  } catch {
    copy.isLost = true;
  }
  onChange(intent);
  return answer;
}

/**
 * Send an intent until a final answer comes or its window is over; always under its one key.
 * @returns the final answer, or null: unresolved.
 */
export async function carryOut(intent, { windowMs, loseFirst, onChange }) {
  intent.state = "sending";
  intent.note = "";
  const until = Math.max(intent.madeAt + windowMs, Date.now() + 1);
  for (let turn = 0; ; turn += 1) {
    const answer = await attempt(intent, { onChange, ...(turn === 0 ? loseFirst : {}) });
    const waitMs = settle(intent, answer, turn);
    if (waitMs === null || Date.now() + waitMs >= until) {
      if (intent.state === "sending") {
        intent.state = "unresolved";
        intent.note ||= "no final answer within the window; it may or may not have happened";
      }
      onChange(intent);
      return isOpen(intent) ? null : answer;
    }
    onChange(intent);
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

/** Say what an answer means for its intent: null if it ends the sending, or the pause before the next copy. */
function settle(intent, answer, turn) {
  const pause = Math.min(BACKOFF_FIRST_MS * 2 ** turn, BACKOFF_MAX_MS) * (0.75 + Math.random() / 2);
  if (answer === null) return pause;
  if (answer.status >= 200 && answer.status < 300) return finish(intent, "done", "");
  const isRefusal = answer.outcome === "not_applied" && !answer.retryable;
  if (isRefusal) {
    // A refusal speaks of its own copy. An earlier one without an answer may still be under way.
    const copies = intent.attempts.filter((copy) => copy.isLost);
    const restMs = Math.max(0, ...copies.map((copy) => copy.sentAt + COPY_LIVES_MS - Date.now()));
    if (restMs === 0 || answer.status === 400 || answer.code === "IDEMPOTENCY_KEY_REUSED") {
      return finish(intent, "refused", answer.detail);
    }
    intent.note = `${answer.detail}; a copy sent before has no answer yet, so it is asked once more`;
    return restMs + 50;
  }
  intent.note = answer.detail;
  if (answer.retryable) return Math.max(pause, answer.retryAfterMs);
  intent.state = "unresolved";
  return null;
}

/** End an intent: nothing more will be sent for it. */
export function finish(intent, state, note) {
  intent.state = state;
  intent.note = note;
  forget(intent);
  return null;
}
