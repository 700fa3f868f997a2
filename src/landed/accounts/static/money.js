// Money is whole cents from the first key press to the last pixel: BigInt, never a binary fraction.

const AMOUNT_CENTS_MAX = 2147483647n;

/** Read what a person typed as cents, or return null with no guess at what was meant. */
export function parseCents(text) {
  const match = /^\s*(\d{1,8})(?:[.,](\d{1,2}))?\s*$/.exec(text);
  if (!match) return null;
  const cents = BigInt(match[1]) * 100n + BigInt((match[2] ?? "").padEnd(2, "0"));
  return cents >= 1n && cents <= AMOUNT_CENTS_MAX ? cents : null;
}

/** Write cents for a person: 1,234.50 */
export function formatCents(cents) {
  const value = BigInt(cents);
  const digits = (value < 0n ? -value : value).toString().padStart(3, "0");
  const units = digits.slice(0, -2).replace(/\B(?=(\d{3})+$)/g, ",");
  return `${value < 0n ? "−" : ""}${units}.${digits.slice(-2)}`;
}
