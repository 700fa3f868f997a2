// Experiments: each says what should happen, does it, and says what did.

import { get } from "./api.js";
import { learn, nameOf, refresh } from "./accounts.js";
import { $, h } from "./dom.js";
import { fleet } from "./fleet.js";
import { attempt, bodyOf, carryOut, forget, newIntent } from "./intents.js";
import { formatCents } from "./money.js";
import { showIntent } from "./intentlog.js";

const CENTS = 100n;
const AFTER_WINDOW_MS = 13000; // the margin that is kept but never promised, and a little
let last = null; // the last intent that was done, for "resend last key"

export function remember(intent) {
  last = intent;
}

const EXPERIMENTS = [
  {
    name: "Send twice at once",
    expected: "Two equal answers, one change.",
    async run({ account, onChange, before }) {
      const intent = newIntent("deposit", account, CENTS);
      const answers = await Promise.all([attempt(intent, { onChange }), attempt(intent, { onChange })]);
      await settleAll(intent, answers, onChange);
      const bodies = intent.attempts.filter((copy) => copy.body).map((copy) => copy.body);
      const growth = (await versionNow(account)) - before;
      const isOne = growth === 1n && bodies.every((body) => body === bodies[0]);
      return [isOne, `${told(intent)}; ${changes(growth)}.`];
    },
  },
  {
    name: "Drop my answer",
    expected: "The first copy is carried out unheard; the retry returns the original; one change.",
    async run({ account, onChange, before }) {
      const intent = newIntent("deposit", account, CENTS);
      const loseFirst = fleet.isDemo ? { lose: true } : { drop: true };
      await carryOut(intent, { windowMs: fleet.windowMs, loseFirst, onChange });
      const growth = (await versionNow(account)) - before;
      const how = intent.attempts.at(-1).how;
      return [growth === 1n && how !== "fresh" && how !== "", `${told(intent)}; ${changes(growth)}.`];
    },
  },
  {
    name: "Resend last key",
    expected: "The first answer again, word for word, and no change.",
    async run({ onChange }) {
      if (!last) return [null, "There is no key yet: press a button on an account first."];
      const before = await versionNow(last.account);
      const answer = await patiently(() => attempt(last, { onChange }));
      const growth = (await versionNow(last.account)) - before;
      if (Date.now() > last.madeAt + fleet.windowMs) {
        return [answer.status === 200, `${told(last, 1)}; ${changes(growth)}. The window was over, so nothing was promised.`];
      }
      return [answer.status === 200 && answer.how !== "fresh" && growth === 0n, `${told(last, 1)}; ${changes(growth)}.`];
    },
  },
  {
    name: "Same key, other amount",
    expected: "Refused with 422: the key belongs to another request. No change.",
    async run({ account, onChange }) {
      const intent = newIntent("deposit", account, CENTS);
      await carryOut(intent, { windowMs: fleet.windowMs, loseFirst: {}, onChange });
      const before = await versionNow(account);
      const body = bodyOf({ ...intent, cents: String(CENTS + 1n) });
      const answer = await patiently(() => attempt(intent, { onChange, body }));
      const growth = (await versionNow(account)) - before;
      return [answer.code === "IDEMPOTENCY_KEY_REUSED" && growth === 0n, `${told(intent, 1)}; ${changes(growth)}.`];
    },
  },
  {
    name: "Resend after the window",
    expected: "The promise is over: usually carried out again, as a new change. Takes a while.",
    async run({ account, onChange, progress }) {
      const intent = newIntent("deposit", account, CENTS);
      await carryOut(intent, { windowMs: fleet.windowMs, loseFirst: {}, onChange });
      const until = Date.now() + fleet.windowMs + AFTER_WINDOW_MS;
      while (Date.now() < until) {
        progress(`waiting, ${Math.ceil((until - Date.now()) / 1000)} s to go`);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
      const before = await versionNow(account);
      const answer = await patiently(() => attempt(intent, { onChange }));
      const growth = (await versionNow(account)) - before;
      const why = growth === 0n ? " This replica still remembered it, which is allowed." : "";
      return [answer.status === 200, `${told(intent, 1)}; ${changes(growth)}.${why}`];
    },
  },
];

/** Show the buttons. `press` gives { onChange } for a new intent on the chosen account. */
export function startExperiments(onChange) {
  for (const experiment of EXPERIMENTS) {
    const button = h("button", { type: "button", onclick: () => perform(experiment, button, onChange) }, experiment.name);
    $("experiments").append(button);
  }
}

async function perform(experiment, button, onChange) {
  const account = $("experiment-account").value;
  if (!account) return;
  button.disabled = true;
  const happened = h("dd", {}, "…");
  const badge = h("span", { class: "badge" }, "running");
  const finding = h("li", { class: "finding", "data-experiment": experiment.name },
    h("div", { class: "title" }, h("span", {}, `${experiment.name}, ${nameOf(account)}`), badge),
    h("dl", {}, h("dt", {}, "Expected"), h("dd", {}, experiment.expected), h("dt", {}, "Happened"), happened));
  $("findings").prepend(finding);
  while ($("findings").children.length > 6) $("findings").lastElementChild.remove();
  try {
    const before = await versionNow(account);
    const progress = (text) => { happened.textContent = text; };
    const [isAsExpected, text] = await experiment.run({ account, before, onChange, progress });
    happened.textContent = text;
    badge.textContent = isAsExpected === null ? "skipped" : isAsExpected ? "as expected" : "not as expected";
    badge.className = `badge ${isAsExpected === null ? "" : isAsExpected ? "yes" : "no"}`;
  } catch (error) {
    happened.textContent = `No verdict: ${error.message}`;
    badge.textContent = "no verdict";
  } finally {
    button.disabled = false;
    refresh(account);
  }
}

/** Settle an intent of which several copies are out: retry, under the same key, what has no answer. */
async function settleAll(intent, answers, onChange) {
  intent.attempts.forEach((copy, index) => { copy.body = answers[index]?.status === 200 ? JSON.stringify(answers[index].body, big) : ""; });
  if (answers.every((answer) => answer?.status === 200)) {
    intent.state = "done";
    forget(intent);
    onChange(intent, answers[0]);
    return;
  }
  await carryOut(intent, { windowMs: fleet.windowMs, loseFirst: {}, onChange });
}

/** Send copies until one is answered for good. */
async function patiently(send) {
  for (let turn = 0; turn < 20; turn += 1) {
    const answer = await send();
    if (answer !== null && !answer.retryable) return answer;
    await new Promise((resolve) => setTimeout(resolve, 300 + 200 * turn));
  }
  throw new Error("no final answer");
}

async function versionNow(account) {
  for (let turn = 0; ; turn += 1) {
    try {
      const { body } = await get(`/api/accounts/${account}/balance`);
      learn(body);
      return BigInt(body.aggregateVersion);
    } catch (error) {
      if (turn === 10) throw error;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

const big = (_name, value) => (typeof value === "bigint" ? value.toString() : value);
const told = (intent, count = intent.attempts.length) => intent.attempts.slice(-count)
  .map((copy) => (copy.isLost ? "no answer" : [copy.status, copy.how || copy.code].filter(Boolean).join(" "))).join(", then ");
const changes = (growth) => (growth === 0n ? "no change" : growth === 1n ? "one change" : `${growth} changes`);
