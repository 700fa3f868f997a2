// One request, one answer, or an exception that says: no answer came. Nothing here tries twice.

const ANSWER_TIMEOUT_MS = 30000; // above the service's own deadline

/** Parse JSON without rounding: integers beyond 2^53 become BigInt where the browser shows them. */
function parse(text) {
  return JSON.parse(text, (_name, value, context) =>
    Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
      ? BigInt(context.source)
      : value);
}

/**
 * Send one request. `lose` asks the demo's balancer to lose the answer; `drop` throws it away here.
 * @returns {status, body, replica, how, code, outcome, retryable, retryAfterMs, detail}
 * @throws if no complete answer came; then nobody knows.
 */
export async function request(path, { body, key, lose = false, drop = false } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key !== undefined) headers["Idempotency-Key"] = `"${key}"`;
  if (lose) headers["Demo-Lose-Answer"] = "1";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body,
    cache: "no-store",
    credentials: "same-origin",
    signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
  });
  if (drop) {
    await response.body?.cancel();
    throw new Error("dropped on purpose");
  }
  const text = await response.text();
  let document = null;
  try { document = parse(text); } catch { /* an answer that is no JSON says only its status */ }
  const said = document !== null && typeof document === "object" ? document : {};
  return {
    status: response.status,
    body: said,
    replica: response.headers.get("Service-Replica") ?? "",
    how: response.headers.get("Idempotency-Result") ?? "",
    code: said.code ?? "",
    outcome: response.ok ? "applied" : said.outcome ?? "unknown",
    retryable: said.retryable ?? response.status >= 500,
    retryAfterMs: 1000 * Number(response.headers.get("Retry-After") ?? 0),
    detail: said.detail ?? said.title ?? "",
  };
}

export async function get(path) {
  const answer = await request(path);
  if (answer.status !== 200) throw new Error(answer.detail || `status ${answer.status}`);
  return answer;
}
