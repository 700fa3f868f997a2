// The page: presses become intents, intents become requests, answers become what is shown.

import { accountIds, addAccount, findInHistory, learn, lockForms, refresh, versionOf } from "./accounts.js";
import { get } from "./api.js";
import { $, warn } from "./dom.js";
import { remember, startExperiments } from "./experiments.js";
import { fleet, liveState, servedBy, startFleet } from "./fleet.js";
import { showIntent, tick } from "./intentlog.js";
import { carryOut, finish, isOpen, newIntent, newKey, pendingIntents } from "./intents.js";

const intents = new Map(); // key -> intent, of the buttons only

const actions = {
  async resend(intent) {
    if (intent.state !== "unresolved") return;
    if (Date.now() >= intent.madeAt + fleet.windowMs && !(await mayResendLate(intent))) return;
    follow(intent, {});
  },
  discard(intent) {
    const isSure = confirm("Forget this intent? It may have happened. A new press gets a new key, so it could happen twice.");
    if (!isSure) return;
    finish(intent, "discarded", "discarded by you; whether it happened is not known");
    onChange(intent);
  },
};

/** After the window a key is not promised to be known any more: look for it in the history first. */
async function mayResendLate(intent) {
  let version = null;
  try { version = await findInHistory(intent.account, intent.key); } catch { /* then a person decides */ }
  if (version !== null) {
    finish(intent, "done", `found in the history: it landed as version ${version}`);
    onChange(intent);
    refresh(intent.account);
    return false;
  }
  return confirm("The window is over and the history does not show this key. If it happened after all, sending it now makes it happen twice. Send it?");
}

/** A button was pressed. True if it became an intent; a second press on an open one does not. */
function press(operation, account, cents, to) {
  if ([...intents.values()].some((intent) => isOpen(intent) && intent.account === account)) return false;
  if (operation === "transfer" && !to) return false;
  let intent;
  try {
    intent = newIntent(operation, account, cents, to);
  } catch {
    warn($("page-problem"), "This browser does not let the page keep a key, so nothing was sent.");
    return false;
  }
  intents.set(intent.key, intent);
  const loses = $("lose").checked;
  follow(intent, loses ? (fleet.isDemo ? { lose: true } : { drop: true }) : {});
  return true;
}

async function follow(intent, loseFirst) {
  const answer = await carryOut(intent, { windowMs: fleet.windowMs, loseFirst, onChange });
  if (answer === null || intent.state !== "done") return;
  remember(intent);
  for (const part of answer.body.from ? [answer.body.from, answer.body.to] : [answer.body]) {
    learn(part);
    refresh(part.accountId, BigInt(part.aggregateVersion));
  }
}

function onChange(intent) {
  servedBy(intent.attempts.at(-1)?.replica);
  showIntent(intent, actions);
  lockForms([...intents.values()].filter(isOpen));
}

async function loadAccounts() {
  try {
    const { body } = await get("/api/accounts");
    for (const { id, name } of body.accounts) addAccount(id, name, press);
    $("no-accounts").hidden = accountIds().length > 0;
    lockForms([...intents.values()].filter(isOpen));
    await Promise.all(accountIds().map((id) => refresh(id)));
  } catch (error) {
    warn($("page-problem"), `The accounts could not be read: ${error.message}`);
  }
}

const live = { stream: null, resyncs: 0 };

function listen() {
  live.stream?.close();
  live.stream = null;
  if (!$("live").checked) { liveState("off"); return; }
  const stream = live.stream = new EventSource("/api/watch/stream");
  const state = (text) => liveState(`${text}, ${live.resyncs} resync${live.resyncs === 1 ? "" : "s"}`);
  state("connecting");
  stream.addEventListener("resync", () => { live.resyncs += 1; state("on"); loadAccounts(); });
  stream.addEventListener("change", (event) => {
    const { accountId, aggregateVersion } = JSON.parse(event.data);
    addAccount(accountId, "", press);
    if (aggregateVersion === undefined || BigInt(aggregateVersion) > versionOf(accountId)) refresh(accountId);
  });
  stream.addEventListener("error", () => state("reconnecting"));
}

async function start() {
  $("live").addEventListener("change", listen);
  $("open-account").addEventListener("click", () => {
    const id = newKey();
    addAccount(id, "", press);
    refresh(id);
  });
  startExperiments((intent) => {
    showIntent(intent, actions);
    if (intent.state === "done") remember(intent);
  });
  await startFleet();
  await loadAccounts();
  for (const intent of pendingIntents()) {
    intents.set(intent.key, intent);
    onChange(intent);
  }
  listen();
  setInterval(tick, 500);
}

start();
