// The payments page: it looks once a second at our side, at the neighbours, and at the processes.

import { $, h, say, warn } from "./dom.js";

const LOOK_EVERY_MS = 1000;
const NAMES = { collect: "charge", mail: "mail" };
const open = new Set(); // receipt ids whose timeline is shown
const stories = new Map(); // receipt id -> { signature, told }
let isFirst = true;

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const answer = await fetch(path, { ...options, signal: AbortSignal.timeout(25000) });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.detail ?? `answered ${answer.status}`);
  return document;
}

const money = (cents) => (cents / 100).toLocaleString("en", { minimumFractionDigits: 2 });
const clock = (ms) => (ms === null ? "" : new Date(ms).toISOString().slice(11, 23));
const tone = (state) => ({
  confirmed: "done", accepted: "doubt", unknown: "doubt", parked: "bad", refused: "bad", fenced: "bad",
}[state] ?? "");

/** Replace what a list shows only if it differs, so that nobody's focus or selection is lost. */
function show(list, items, make, extra = "") {
  const signature = JSON.stringify(items) + extra;
  if (list.dataset.shown === signature) return;
  list.dataset.shown = signature;
  list.replaceChildren(...items.map(make));
}

function steps(receipt) {
  const badges = [h("span", { class: "badge original" }, `receipt ${receipt.disposition}`)];
  if (receipt.invoice === null) badges.push(h("span", { class: "badge" }, "waits for the worker"));
  for (const effect of receipt.effects) {
    const tries = effect.attempts > 1 ? `, ${effect.attempts} attempts` : "";
    badges.push(h("span", { class: `badge ${tone(effect.state)}` }, `${NAMES[effect.type]} ${effect.state}${tries}`));
  }
  return h("div", { class: "steps" }, ...badges.flatMap((badge, index) =>
    (index === 0 ? [badge] : [h("span", { class: "arrow", "aria-hidden": "true" }, "→"), badge])));
}

function timeline(told) {
  const lines = told.flatMap((story, index) => {
    const who = story.kind === "receipt" ? "receipt" : index === 1 ? "charge" : "mail";
    return story.lines.map((line) => ({ ...line, who }));
  });
  lines.sort((a, b) => (a.atMs ?? Infinity) - (b.atMs ?? Infinity));
  return h("ol", { class: "story" }, ...lines.map((line) => h("li", {},
    h("span", { class: "at" }, clock(line.atMs)),
    h("span", { class: "who" }, line.who),
    h("span", { class: /ambiguous|inconclusive|unknown/.test(line.what) ? "doubt" : /confirmed|present|success/.test(line.what) ? "done" : "" }, line.what),
    h("span", { class: "detail" }, line.detail))));
}

function bankSays(receipt, chargesOf) {
  const made = chargesOf[receipt.invoice] ?? 0;
  return h("span", { class: made > 1 ? "theirs bad" : "theirs" },
    "the bank's own books: ", h("b", {}, made === 1 ? "1 charge" : `${made} charges`));
}

function card(receipt, chargesOf) {
  const isOpen = open.has(receipt.id);
  const number = receipt.invoice ?? receipt.event.replace("evt_", "");
  return h("li", { class: "receipt", "data-invoice": number },
    h("div", { class: "title" },
      h("h3", {}, `Invoice ${number}`),
      receipt.customer ? h("span", {}, receipt.customer) : null,
      receipt.cents === null ? null : h("span", { class: "amount" }, money(receipt.cents)),
      h("span", { class: "quiet" }, receipt.state === null ? "" : `our row says ${receipt.state}`),
      h("span", { class: "at" }, clock(receipt.atMs))),
    steps(receipt),
    h("div", { class: "foot" },
      h("button", { type: "button", class: "small", "aria-label": `Send invoice ${number} again`, onclick: () => send({ invoice: number }) }, "Send again"),
      h("button", { type: "button", class: "small", "aria-label": `Send invoice ${number} again 20 times`, onclick: () => send({ invoice: number, copies: 20 }) }, "20 times in parallel"),
      h("button", { type: "button", class: "plain small", "aria-expanded": String(isOpen), "aria-label": `Timeline of invoice ${number}`, onclick: () => toggle(receipt.id) }, isOpen ? "Hide timeline" : "Timeline"),
      bankSays(receipt, chargesOf)),
    isOpen && stories.has(receipt.id) ? timeline(stories.get(receipt.id).told) : null);
}

function doubt(item) {
  return h("li", { class: "intent" },
    h("div", { class: "title" }, h("span", {}, item.key), h("span", { class: "badge doubt" }, item.state)),
    h("p", { class: "note" }, item.why),
    h("p", { class: "note" }, `Waits for: ${item.waitsFor}.`),
    item.wouldSettle.length === 0 ? null : h("p", { class: "note" }, "Would settle it:"),
    h("ul", { class: "would" }, ...item.wouldSettle.map((way) => h("li", {}, way))),
    item.state === "unknown"
      ? h("div", { class: "actions" }, h("button", { type: "button", class: "small", onclick: () => askNow(item.id) }, "Ask now"))
      : null);
}

function asideItem(item) {
  return h("li", { class: "intent" },
    h("div", { class: "title" }, h("span", {}, item.type), h("span", { class: "badge bad" }, item.reason.replaceAll("_", " "))),
    h("p", { class: "note" }, `Event ${item.event}, at ${clock(item.atMs)}. Owner: ${item.owner}.`),
    h("p", { class: "note mono" }, `landed quarantine show ${item.id} --database sqlite:///.landed-demo/payments.sqlite`));
}

function showProcesses(children) {
  show($("processes"), children, (child) => h("li", {},
    h("span", { class: `dot ${child.state}` }),
    h("span", {}, child.name),
    h("span", { class: "quiet" }, child.state === "running" ? `pid ${child.pid}` : child.state),
    child.name === "worker" ? h("button", {
      type: "button", class: "small", disabled: child.state !== "running", onclick: () => press(() => ask("/demo/kill", { replica: "worker" })),
    }, "Restart the worker") : null));
}

async function readStories(receipts) {
  for (const receipt of receipts.filter((one) => open.has(one.id))) {
    const signature = JSON.stringify(receipt.effects) + receipt.state;
    if (stories.get(receipt.id)?.signature === signature) continue;
    stories.set(receipt.id, { signature, told: await ask(`/payments/api/stories/${receipt.id}`) });
  }
}

async function look() {
  const [ours, theirs, demo] = await Promise.all([
    ask("/payments/api/state"), ask("/payments/their/state"), ask("/demo/state")]);
  if (isFirst && ours.receipts.length > 0) {
    open.add(ours.receipts[0].id);
    isFirst = false;
  }
  await readStories(ours.receipts);
  for (const [id, value] of [
    ["n-sent", theirs.sent], ["n-receipts", ours.counts.receipts], ["n-wanted", ours.counts.charges],
    ["n-charges", theirs.charges], ["n-mails", theirs.mails], ["n-lost", theirs.lostAnswers]]) say($(id), String(value));
  $("losing").checked = theirs.losing;
  $("silent").checked = theirs.silent;
  showProcesses(demo.others);
  const shown = JSON.stringify([theirs.chargesOf, [...open], ...[...stories].map(([id, story]) => id + story.told.map((one) => one.lines.length))]);
  show($("receipts"), ours.receipts, (receipt) => card(receipt, theirs.chargesOf), shown);
  show($("doubts"), ours.doubts, doubt);
  show($("aside"), ours.quarantine, asideItem);
  $("no-receipts").hidden = ours.receipts.length > 0;
  $("no-doubts").hidden = ours.doubts.length > 0;
  $("no-aside").hidden = ours.quarantine.length > 0;
}

let looking = Promise.resolve();
function lookSoon() {
  looking = looking.then(look).then(() => warn($("problem"), ""), (error) =>
    warn($("problem"), `Some part does not answer right now (${error.message}); what is shown may be old.`));
  return looking;
}

async function press(action) {
  try { await action(); } catch (error) { say($("said"), error.message); $("said").hidden = false; }
  await lookSoon();
}

function send(what) {
  return press(async () => {
    const done = await ask("/payments/their/send", what);
    const said = Object.entries(done.answers).map(([answer, count]) => `${count} ${count === 1 ? "answer" : "answers"} ${answer}`).join(", ");
    const copies = what.copies > 1 ? ` ${what.copies} times in parallel` : "";
    say($("said"), `The shop sent ${done.event} (${done.type})${copies}, and got ${said}.`);
    $("said").hidden = false;
  });
}

function askNow(id) {
  return press(() => ask(`/payments/api/ask/${id}`, {}));
}

function toggle(id) {
  if (!open.delete(id)) open.add(id);
  return lookSoon();
}

$("send").addEventListener("click", () => send({}));
$("send-20").addEventListener("click", () => send({ copies: 20 }));
$("send-odd").addEventListener("click", () => send({ unsupported: true }));
for (const name of ["losing", "silent"]) {
  $(name).addEventListener("change", (event) =>
    press(() => ask("/payments/their/switch", { [name]: event.target.checked })));
}

async function follow() {
  await lookSoon();
  setTimeout(follow, document.hidden ? LOOK_EVERY_MS * 5 : LOOK_EVERY_MS);
}
follow();
